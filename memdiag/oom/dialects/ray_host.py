"""Ray's memory monitor, which kills workers before the kernel has to, and its object store.

Texts: RayOutOfMemoryError (1.x), OutOfMemoryError (since 2.0; since 2.2 with the worker's process and its memory), and
a raylet line that only counts workers. The guess "(1) The process is killed by SIGKILL by OOM killer" is part of every
worker crash and proves nothing about memory, so it counts only without a better message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import gather, number, shown, stretches
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, size_of, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase

FORMATS = ("ray_host",)
NAMES = {"ray": "Ray"}
ANCHORS = (
    "runninglowonmemory",
    "memoryusagethreshold",
    "memorypressure",
    "rayoutofmemory",
    "ofthememoryonnode",
    "systemmemorylow",
    "memoryonthenode",
    "objectstorefull",
    "objectstorebecauseitisfull",
    "byoomkiller",
)
EXAMPLES = (
    (
        "ray_host",
        (
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
            "Memory on the node (IP: "
            "10.0.0.1, ID: 0a1b) "
            "where the task (task ID: ff, name=f, pid=4711, memory used=0.53GB) was running was 14.2GB / 14.84GB "
            "(0.958837), which exceeds "
            "the memory usage threshold of 0.95."
        ),
    ),
    (
        "ray_host",
        (
            "(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), "
            "0 Workers crashed due to other reasons"
        ),
    ),
)

_HEAD = pattern(
    r"(?:(?:Task|Actor|Lease|Worker|Driver)? (?:\([^)]{0,200}\))? was killed due to the node running low on memory"
    r" | Memory on the node \( | (?:RayOutOfMemoryError:)? More than \d+% of the memory on node"
    r" | System memory low at node with IP [\w.:-]{1,80}? \.? (?=Used memory))"
)
_CLAUSES = (
    pattern(r"was running (?:was|used) {allocated:size} / {total:size}"),
    pattern(r"Memory on the node \([^)]{0,300}\) (?:was|is) {allocated:size} / {total:size}"),
    pattern(r"Used memory \( {allocated:size} \) / total capacity \( {total:size} \)"),
    pattern(r"memory usage threshold of {threshold:float}"),
    pattern(r"\(\d\.\d{1,9}\) exceeds threshold {threshold:float}"),
    pattern(r"pid={pid:int},memory used={process:size}"),
    pattern(r"[(,]pid={pid:int}[,)]"),
    pattern(r"of the memory on node .{1,200}? is used \({allocated:float}/{total:size}\)"),
)
_COUNT = pattern(
    r"(?<!\d){workers:int} Workers \(tasks/actors\) killed due to memory pressure \(OOM\)"
    r" (?:, \d+ Workers crashed due to other reasons)?"
)
_STORE = pattern(
    r"(?:ObjectStoreFullError: .{0,200}?)? Failed to put object \w{1,80} in (?:the )?object store because it is full\."
    r" (?:Object size is {requested:int} bytes)?"
)
_GUESS = pattern(r"The process is killed by SIGKILL by OOM killer due to high memory usage")
_ROW = re.compile(r"\s*(\d{1,8})\s+(\d{1,9}(?:\.\d{1,3})?)\s*([KMGT]i?B)?\s+\S.{0,4000}")
_CONSUMERS = re.compile(r"PID\s+MEM(?:\s*\((GB|GiB|MB)\))?\s+COMMAND", re.IGNORECASE)

_FEWER = LazyFix("oom_ray.fewer", "code", "@ray.remote(num_cpus=4, memory=8 * 1024**3)")
_THRESHOLD = LazyFix("oom_ray.threshold", "env", "RAY_memory_usage_threshold=0.98 ray start ...")
_RETRIES = LazyFix("oom_ray.retries", "code", "@ray.remote(max_retries=-1)")
_STORE_SIZE = LazyFix("oom_ray.store", "flag", "ray start --object-store-memory=34359738368 ...")


_WORKER = pattern(r"Worker PID : {pid:int} (?= Worker exit)")
_WORKER_REACH = 400
_LOG = LazyFix("oom_ray.log", "flag", "tail -n 50 /tmp/ray/session_latest/logs/worker-*-%s.*")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    yield from _monitor(text)
    for match in _COUNT.finditer(text.text):
        # "0 Workers killed due to memory pressure, 3 crashed" is about something else
        if int(match["workers__int"][:9]):
            why = phrase("oom_ray.why.counted", count=int(match["workers__int"][:9]))
            yield _found(match.start(), match.end(), {}, (why,), (_FEWER, _THRESHOLD, WATCH), "medium")
    for match in _STORE.finditer(text.text):
        given = take(match)
        size = number(given, "requested")
        fields: Fields = {} if size is None else {"requested_bytes": size}
        yield _found(match.start(), match.end(), fields, (phrase("oom_ray.why.store"),), (_STORE_SIZE, _FEWER))
    for match in _GUESS.finditer(text.text):
        why = phrase("oom_ray.why.guess")
        alternatives: tuple[Cause, ...] = ("unknown",)
        judgement = Judgement("host", "low", alternatives, (why,))
        worker = next(_WORKER.finditer(text.text, max(match.start() - _WORKER_REACH, 0), match.start()), None)
        fields = {} if worker is None else take(worker)
        log = replace(_LOG, change=_LOG.change % fields.get("pid", "PID"))
        yield Found(
            match.start(), match.end(), "ray_host", "ray", "cpu", fields, judgement, (log, WATCH), is_warning=True
        )


def _monitor(text: Squeezed) -> Iterator[Found]:
    heads = list(stretches(text, _HEAD, 2500))
    skip = -1
    for index, (head, stop) in enumerate(heads):
        if head.start() < skip:
            continue
        numbers_follow = (
            "lowonmemory" in head[0].lower()
            and index + 1 < len(heads)
            and heads[index + 1][0].start() - head.end() < 200
        )
        if numbers_follow:  # the sentence with the numbers belongs to the one before it
            following, stop = heads[index + 1]
            skip = following.end()
        fields, end = gather(text, head.start(), stop, _CLAUSES)
        if isinstance(fields.pop("allocated", None), float):
            fields["allocated_bytes"] = _old_style(text, head.start(), stop)
        processes = _consumers(text, head.start(), stop)
        if len(processes) > 1:
            fields["processes"] = processes
        yield _found(head.start(), max(end, head.end()), fields, _reasons(fields), (_FEWER, _THRESHOLD, _RETRIES))


def _old_style(text: Squeezed, start: int, stop: int) -> int:
    """Reads Ray 1.x's "(60.5 / 62.8 GB)": one unit for both numbers."""
    match = re.compile(r"\((\d{1,9}(?:\.\d{1,3})?)/\d{1,9}(?:\.\d{1,3})?([KMGT]i?B)\)").search(text.text, start, stop)
    return size_of(match[1] + match[2]) if match else 0


def _consumers(text: Squeezed, start: int, stop: int) -> list[list[int]]:
    """Returns pid and bytes from the table "PID MEM(GB) COMMAND".

    It reads lines instead of squeezed text, since the table needs its spaces.
    """
    rows: list[list[int]] = []
    unit = None
    for line in text.lines[text.line_index(start) : text.line_index(max(stop - 1, start)) + 1]:
        head = _CONSUMERS.search(line.text)
        row = _ROW.fullmatch(line.text)
        if head:
            unit = head[1] or "GB"
        elif unit and row:
            rows.append([int(row[1]), size_of(row[2] + (row[3] or unit))])
        elif unit and rows:
            break
    return rows


def _reasons(fields: Fields) -> tuple[str, ...]:
    used, total, one = (number(fields, name) for name in ("allocated_bytes", "total_bytes", "process_bytes"))
    reasons = []
    if used is not None and total:
        threshold = fields.get("threshold")
        amounts = {"used": shown(used), "total": shown(total), "share": f"{used / total:.1%}"}
        above = threshold is not None
        reasons.append(
            phrase("oom_ray.why.threshold", **amounts, threshold=str(threshold))
            if above
            else phrase("oom_ray.why.used", **amounts)
        )
    else:
        reasons.append(phrase("oom_ray.why.low"))
    if used is not None and one is not None and one * 2 < used:
        reasons.append(phrase("oom_ray.why.newest", size=shown(one)))
    return tuple(reasons)


def _found(
    start: int,
    end: int,
    fields: Fields,
    reasons: tuple[str, ...],
    fixes: tuple[LazyFix, ...],
    confidence: Confidence = "high",
) -> Found:
    return Found(
        start, end, "ray_host", "ray", "cpu", fields, Judgement("host", confidence, ("limit",), reasons), fixes
    )
