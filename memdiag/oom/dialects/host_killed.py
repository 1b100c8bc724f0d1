"""Processes that ended by SIGKILL or SIGBUS, as reported by their parents: loaders, shells, launchers.

Only the kernel or a person sends SIGKILL without a warning, so host memory is the first suspect; only the kernel's log
proves it. Shells report it in a separate line and in their own language ("Killed", "已杀死"), so such words count as
whole lines only. torchrun kills the other ranks of a failed one with SIGTERM, and unresponsive ones with SIGKILL, so
the first failure counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.dialects.host_memory import FEWER_JOBS, FEWER_WORKERS, SHARE_DATASET, SHM, WATCH
from memdiag.oom.dialects.parts import whole_lines
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase

FORMATS = ("host_killed",)
_SHELL_WORDS = (
    "killed",
    "已杀死",
    "已殺死",
    "已砍掉",
    "杀死",
    "getötet",
    "processus arrêté",
    "terminado (killed)",
    "ucciso",
    "morto",
    "убито",
    "죽었음",
    "強制終了",
    "unicestwiony",
    "gedood",
)
ANCHORS = (
    "dataloaderworker",
    "unexpectedbuserror",
    "sigkill",
    "exitcode:-9",
    "exitcode:137",
    "exitcode137",
    "returncode=-9",
    "returncode-9",
    "signal:killed",
    "signal9",
    "sessioncrashed",
    "notebooktriedtoallocate",
    "exitcodeis137",
    "killed",  # the caseless part of the shells' words, in any language
    "杀死",
    "殺死",
    "砍掉",
    "getötet",
    "processusarrêté",
    "ucciso",
    "morto",
    "бито",
    "죽었음",
    "強制終了",
    "unicestwiony",
    "gedood",
    'exitcode":137',
)
WORDS = ("exitcode", "exit code", "exited unexpectedly", "杀死", "殺死")
EXAMPLES = (
    ("host_killed", "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed."),
    ("host_killed", "train.sh: line 12: 4711 Killed                  python train.py"),
    (
        "host_killed",
        (
            "torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 1 (pid: 4711) of binary: "
            "/usr/bin/python3"
        ),
    ),
)

_LOADER = pattern(
    r"DataLoader worker \( pid (?:\(s\))? {pid:int} (?:,\d+){0,99} \)"
    r"(?: is killed by signal: (?P<signal>Killed|Bus error|Unknown signal: 9) | (?P<exited> exited unexpectedly))"
)
_BUS = pattern(r"Unexpected bus error encountered in worker")
_ELASTIC = pattern(
    r"(?:rank:{rank:int} \(local_rank:{local_rank:int}\))? exitcode:(?:-9|137) \(pid:{pid:int}\)"
    r"(?: error_file:.{0,200}? traceback:Signal9\(SIGKILL\) received by PID\d+)?"
)
_FAILED = pattern(r"failed \(exitcode:(?:-9|137)\) local_rank:{local_rank:int} \(pid:{pid:int}\)")
_LAUNCHERS = (
    pattern(r"(?:--local[_-]rank=? {local_rank:int} [^\d] .{0,600}?)? exits with return code = -9"),
    pattern(r"process \d+ terminated with signal SIGKILL"),
    pattern(r"Signal 9 \(SIGKILL\) received by PID {pid:int}"),
    pattern(r"died with <Signals\.SIGKILL:9>"),
    pattern(r"exit codes? of the workers are \{[^}]{0,200}SIGKILL\(-9\)"),
    pattern(
        r"(?:finished with|exited with|returned|status|process exit(?:ed)?)"
        r" (?:non-zero )?(?:exit )?(?:code|status)?:?=? (?:137|-9)(?!\d)"
    ),
    pattern(r"exit code [\"']? :? (?:137|-9)(?!\d)"),
    pattern(r"(?:exited|terminated|killed) (?:by|due to|with|on) signal:? (?:9(?!\d)|SIGKILL|Killed)"),
    pattern(r"(?<!worker has )(?<!is killed by )signal: killed"),
    pattern(r"Killed signal terminated program \w{2,20}"),  # GCC: a build needed too much
    pattern(r"died due to signal 9"),  # nvcc
    pattern(r"make(?:\[\d{1,4}\])?:\*\*\*\[[^\]]{1,200}\] (?:Killed|Error 137)(?!\d)"),
    pattern(r"session crashed after using all available RAM"),
    pattern(r"notebook tried to allocate more memory than is available"),
    pattern(r"Container killed on request \. Exit code is 137"),
)

_NEAR = 200
# Docker inspected a container that a command stopped, not the kernel.
_STOPPED = pattern(r"OOMKilled [\"'] : false")

_WORDS = "|".join(re.escape(word) for word in _SHELL_WORDS)
# bash and sh: "Killed", "a.sh: line 3: 4711 Killed   python a.py", "[1]+  Killed   python a.py"; zsh: "[1]  4711 killed
# python a.py",
# "zsh: killed     python a.py".
_SHELL = re.compile(
    rf"(?:(?:[^\s:]{{1,200}}: )?(?:(?:line |第 ?|ligne |Zeile )\d{{1,6}}(?: ?行)?|\d{{1,6}})[:\uff1a] *)?"
    rf"(?:\[\d{{1,4}}\][+-]? +)?"
    rf"(?:zsh: )?(?:(?P<pid>\d{{1,8}}) +)?"
    rf"(?:{_WORDS})(?:: 9)?[.!]?(?:\s.{{0,4000}})?(?:\(core dumped\))?",
    re.IGNORECASE,
)
_BARE = re.compile(rf"(?:{_WORDS})(?:: 9)?[.!]?(?: \(core dumped\))?", re.IGNORECASE)

_LOG = LazyFix(
    "oom_killed.log", "flag", "dmesg -T | grep -iE 'out of memory|oom-kill|killed process'  # or: journalctl -k"
)

_PARTS = LazyFix("oom_killed.parts", "code", "for part in pandas.read_csv(path, chunksize=100_000): ...")
_ALONE = LazyFix("oom_killed.alone", "code", "DataLoader(..., num_workers=0)")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    yield from _loaders(text)
    yield from _elastic(text)
    spans = [match.span() for head in (_ELASTIC, _FAILED) for match in head.finditer(text.text)]
    already_reported = {place for begin, stop in spans for place in range(begin // _NEAR - 1, stop // _NEAR + 2)}
    end = -1
    for match in sorted(
        (found for head in _LAUNCHERS for found in head.finditer(text.text)), key=lambda found: found.start()
    ):
        if match.start() < end or match.start() // _NEAR in already_reported:  # torchrun's summary repeats it
            continue
        end = match.end()
        if _STOPPED.search(text.text, max(match.start() - 400, 0), end + 200):
            continue
        crashed = "crashed" in match[0] or "notebook" in match[0]
        why = phrase("oom_killed.why.sigkill")
        if crashed:
            why = phrase("oom_killed.why.notebook")
        around = text.text[max(match.start() - 400, 0) : end + 200].lower()
        building = "terminatedprogram" in match[0].lower() or "diedduetosignal" in match[0].lower()
        framework = (
            "pytorch"
            if "torch" in around or "local_rank" in match[0].lower() or "deepspeed" in around or "launch.py" in around
            else "shell"
        )
        alternatives: tuple[Cause, ...] = () if crashed else ("unknown",)
        fixes = (FEWER_JOBS, _LOG) if building else (_LOG, FEWER_WORKERS, WATCH)
        if crashed:  # a hosted notebook cannot read the log of the kernel
            fixes = (_PARTS, FEWER_WORKERS, WATCH)
        yield _found(
            match.start(), end, take(match), why, alternatives, fixes, "high" if crashed else "medium", framework
        )
    for start, stop, line in whole_lines(text, _SHELL):
        if not (
            line["pid"] or _BARE.fullmatch(line[0]) or re.match(r"\[\d|zsh:|\S{1,200}: \d{1,6}: \S{1,40}$", line[0])
        ):
            continue  # "Killed by …" is part of a sentence
        fields: Fields = {"pid": int(line["pid"])} if line["pid"] else {}
        why = phrase("oom_killed.why.shell")
        yield _found(start, stop, fields, why, ("unknown",), (_LOG, FEWER_WORKERS, WATCH), "medium", "shell")


def _loaders(text: Squeezed) -> Iterator[Found]:
    taken = -1
    for match in _LOADER.finditer(text.text):
        start = match.start()
        for bus in _BUS.finditer(text.text, max(start - 400, 0), start):  # printed earlier by the worker itself
            start = bus.start()
        taken = max(taken, match.end())
        if match["exited"]:
            why = phrase("oom_killed.why.vanished")
            yield _found(
                start, match.end(), take(match), why, ("unknown",), (_ALONE, FEWER_WORKERS, SHM, _LOG), "low", "pytorch"
            )
        elif "bus" in match["signal"].lower():
            why = phrase("oom_killed.why.bus")
            yield _found(start, match.end(), take(match), why, ("limit",), (SHM, FEWER_WORKERS), "high", "pytorch")
        else:
            why = phrase("oom_killed.why.worker")
            yield _found(
                start, match.end(), take(match), why, (), (FEWER_WORKERS, SHARE_DATASET, _LOG), "high", "pytorch"
            )
    for match in _BUS.finditer(text.text):
        if not _LOADER.search(text.text, match.end(), match.end() + 600):
            why = phrase("oom_killed.why.bus")
            yield _found(match.start(), match.end(), {}, why, ("limit",), (SHM, FEWER_WORKERS), "high", "pytorch")


def _elastic(text: Squeezed) -> Iterator[Found]:
    """Yields the failures in torchrun's summary: a block for each rank, after a line about the first."""
    summary = list(_ELASTIC.finditer(text.text))
    already_reported = {match["pid__int"] for match in summary}
    for match in [
        *(failed for failed in _FAILED.finditer(text.text) if failed["pid__int"] not in already_reported),
        *summary,
    ]:
        if any(
            failed.start() < match.start() < failed.end()
            for failed in _FAILED.finditer(text.text, max(match.start() - 20, 0), match.end() + 60)
        ):
            continue
        why = phrase("oom_killed.why.launcher")
        yield _found(
            match.start(),
            match.end(),
            take(match),
            why,
            ("unknown",),
            (_LOG, FEWER_WORKERS, WATCH),
            "medium",
            "pytorch",
        )


def _found(
    start: int,
    end: int,
    fields: Fields,
    why: str,
    others: tuple[Cause, ...],
    fixes: tuple[LazyFix, ...],
    confidence: Confidence,
    framework: str,
) -> Found:
    return Found(
        start, end, "host_killed", framework, "cpu", fields, Judgement("host", confidence, others, (why,)), fixes
    )
