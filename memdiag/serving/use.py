"""Use of the KV cache over time, from the lines that an engine writes while it serves.

vLLM writes a line every 10 seconds (vllm/v1/metrics/loggers.py; V0: engine/metrics.py), SGLang one for each batch of
prompts and for every 40th decoding step (scheduler_metrics_mixin.py). vLLM V0 counts all preemptions since the start in
a warning; newer versions write the preemptions of the last 10 seconds. SGLang calls them retracted requests.
TensorRT-LLM's C++ runtime writes a JSON object for each iteration if its log of iterations is on
(``--log_iteration_data``, docs/source/performance/perf-analysis.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from memdiag.results.finding import Fix
from memdiag.results.serving import ServingUse, UseConclusion, UsePoint
from memdiag.serving.case import flag, shown
from memdiag.serving.rules import speaker_of

MARGIN = 1.25  # of the peak: a KV cache of this size would have had room to spare
_FULL, _AMPLE = 0.95, 0.6  # shares of the KV cache in use
MOST_POINTS = 60
_LONGEST = 2000  # characters of a line
_VLLM = re.compile(r"Running: (\d+) reqs, (?:Swapped: \d+ reqs, )?(?:Waiting|Pending): (\d+) reqs")
_VLLM_USAGE = re.compile(r"KV cache usage: (\d+(?:\.\d+)?)%")
_VLLM_PREEMPTIONS = re.compile(r"\bPreemptions: (\d+)")
_VLLM_ALL_PREEMPTIONS = re.compile(r"total_num_cumulative_preemption=(\d+)")
_SGLANG_RUNNING = re.compile(r"(?:Decode|Prefill) batch.*?#running-req: (\d+)")
_SGLANG_USAGE = re.compile(r"token usage: (\d+(?:\.\d+)?)")
_SGLANG_WAITING = re.compile(r"#queue-req: (\d+)")
_SGLANG_RETRACTED = re.compile(r"#retracted_reqs?: (\d+)")
_TIME = re.compile(r"(?:(?:\d{4}-)?\d\d-\d\d|\d\d-\d\d-\d{4})[ T]\d\d:\d\d:\d\d")
_TENSORRT = re.compile(r'"(Active Request Count|Scheduled Requests|(?:Max|Used) KV cache blocks)": ?(\d+)')
_TENSOR_RANK = re.compile(r"\bTP\d+")


class _Samples:
    """Collects the samples and preemptions of a log."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drops the samples of an earlier start."""
        self.found: list[UsePoint] = []
        self.cumulative = 0
        self.preempted: dict[str, dict[str, int]] = {}  # by engine or data-parallel rank, then by worker

    def add(self, usage: float, line: int, running: int, waiting: int, text: str) -> None:
        """Adds a sample."""
        time = _TIME.search(text)
        self.found.append(UsePoint(line, time[0] if time else "", round(min(usage, 1.0), 4), running, waiting))

    def preempt(self, text: str, count: int) -> None:
        """Adds preemptions. All ranks of a tensor-parallel group preempt the same requests."""
        worker = speaker_of(text)
        workers = self.preempted.setdefault(_TENSOR_RANK.sub("", worker), {})
        workers[worker] = workers.get(worker, 0) + count

    @property
    def num_preemptions(self) -> int:
        """Number of preempted requests."""
        return max(self.cumulative, sum(max(workers.values()) for workers in self.preempted.values()))


def use_of(
    lines: Iterable[str], start: re.Pattern[str] | None, program: str, kv_bytes: int | None
) -> ServingUse | None:
    """Returns the use of the KV cache, or None if the log has no such lines.

    Args:
        lines: Lines of the log.
        start: A line that matches begins a new start of the server; earlier lines do not count.
        program: "vllm", "vllm-ascend", "sglang" or "tensorrt-llm"; the lines of other engines are not known.
        kv_bytes: Size of the KV cache of one card; None if unknown.
    """
    samples = _Samples()
    read = _READERS.get(program)
    if read is None:
        return None
    for number, raw in enumerate(lines, 1):
        text = raw[:_LONGEST]
        if start is not None and start.search(text):
            samples.clear()
        read(samples, number, text)
    return _summary(samples, program, kv_bytes)


def _read_vllm(samples: _Samples, number: int, text: str) -> None:
    if "reqs" in text and (requests := _VLLM.search(text)) and (usage := _VLLM_USAGE.search(text)):
        samples.add(float(usage[1]) / 100, number, int(requests[1]), int(requests[2]), text)
        if preempted := _VLLM_PREEMPTIONS.search(text):
            samples.preempt(text, int(preempted[1]))
    elif total := _VLLM_ALL_PREEMPTIONS.search(text):
        samples.cumulative = max(samples.cumulative, int(total[1]))


def _read_sglang(samples: _Samples, number: int, text: str) -> None:
    running = _SGLANG_RUNNING.search(text) if "-req: " in text else None
    usages = _SGLANG_USAGE.findall(text) if running else []
    if running and usages:
        waiting = _SGLANG_WAITING.search(text)
        samples.add(max(map(float, usages)), number, int(running[1]), int(waiting[1]) if waiting else 0, text)
    elif retracted := _SGLANG_RETRACTED.search(text):
        samples.preempt(text, int(retracted[1]))


def _read_tensorrt(samples: _Samples, number: int, text: str) -> None:
    found = {name: int(value) for name, value in _TENSORRT.findall(text)} if "KV cache blocks" in text else {}
    if len(found) == 4 and (total := found["Max KV cache blocks"]):
        running = found["Scheduled Requests"]
        waiting = max(found["Active Request Count"] - running, 0)
        samples.add(found["Used KV cache blocks"] / total, number, running, waiting, text)


_READERS = {
    "vllm": _read_vllm,
    "vllm-ascend": _read_vllm,
    "sglang": _read_sglang,
    "tensorrt-llm": _read_tensorrt,
}


def _summary(samples: _Samples, program: str, kv_bytes: int | None) -> ServingUse | None:
    preempted = samples.num_preemptions
    if not samples.found and not preempted:
        return None
    peak = max(samples.found, default=None, key=lambda point: point.usage)
    usage, running = (peak.usage, peak.running) if peak else (None, 0)
    conclusion = _conclusion(samples.found, usage, preempted)
    needed = None
    if conclusion == "ample" and usage and kv_bytes is not None:
        needed = math.ceil(kv_bytes * usage * MARGIN)
    return ServingUse(
        len(samples.found),
        usage,
        peak.line if peak else 0,
        peak.time if peak else "",
        running,
        peak.waiting if peak else 0,
        max((point.running for point in samples.found), default=0),
        max((point.waiting for point in samples.found), default=0),
        preempted,
        conclusion,
        needed,
        tuple(_fixes(conclusion, program, needed, running)),
        tuple(_points(samples.found)),
    )


def _points(found: Sequence[UsePoint]) -> Iterable[UsePoint]:
    """Yields at most ``MOST_POINTS`` samples: the first, the last, and the largest of each equal part between them."""
    if len(found) <= MOST_POINTS:
        yield from found
        return
    between, parts = found[1:-1], MOST_POINTS - 2
    yield found[0]
    for part in range(parts):
        low, high = len(between) * part // parts, len(between) * (part + 1) // parts
        yield max(between[low:high], key=lambda point: point.usage)
    yield found[-1]


def _conclusion(found: Sequence[UsePoint], peak: float | None, preempted: int) -> UseConclusion:
    if preempted:
        return "preempted"
    waiting = [point.usage for point in found if point.waiting]
    if waiting:
        return "full" if max(waiting) >= _FULL else "limited"
    return "ample" if peak and peak <= _AMPLE else "fits"


def _fixes(conclusion: UseConclusion, program: str, needed: int | None, running: int) -> Iterable[Fix]:
    """Yields the flags to change that follow from the samples alone."""
    requests = "--max-running-requests" if program == "sglang" else "--max-num-seqs"
    is_vllm = program.startswith("vllm")
    if conclusion == "preempted" and running > 1:
        yield flag("use.fewer", f"{requests} {running - 1}", running=running)
    if conclusion == "ample" and needed is not None and is_vllm:
        yield flag("use.smaller", f"--kv-cache-memory-bytes {needed}", needed=shown(needed))
