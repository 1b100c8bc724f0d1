"""Finds the commit or package version that raised the peak of a command, by recording it at few of them.

A run is bad if its peak is over the budget or it ran out of memory. A run that fails for another reason is skipped, as
``git bisect skip`` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memdiag.errors import BUDGET_HIT, MemdiagError
from memdiag.gates.ahead import Ahead
from memdiag.gates.inside import innermost_lines
from memdiag.gates.judging import SHARE
from memdiag.gates.revisions import Prepared, Revisions, own_memdiag
from memdiag.results.bisect import BisectReport, BisectStep, GrownSite
from memdiag.runs.listener import SILENT, Listener
from memdiag.text import phrase
from memdiag.trace.moments import DEFAULT
from memdiag.units import format_bytes

METRICS = {"reserved": "peak_reserved", "allocated": "peak_allocated"}
OUTPUT = "output.txt"
_MOST_SITES = 5


@dataclass(frozen=True)
class BisectOrder:
    """What to search.

    Attributes:
        command: The command to record.
        folder: Folder for the recordings.
        metric: "reserved" or "allocated".
        budget_bytes: The limit, or None for the middle between the peaks of the two ends.
        device: The simulated device, or None for the devices of this machine.
        package: Name of the package, or "" for commits.
    """

    command: tuple[str, ...]
    folder: Path
    metric: Literal["reserved", "allocated"] = "reserved"
    budget_bytes: int | None = None
    device: str | None = None
    package: str = ""


@dataclass(frozen=True)
class _Run:
    """One recording; ``peak`` and ``trace`` are those of the process that needed most."""

    peak: int | None
    trace: Path | None
    is_oom: bool
    why: str
    seconds: float
    folder: str


@dataclass
class _BisectSearch:
    order: BisectOrder
    revisions: Revisions
    ahead: Ahead
    listener: Listener
    on_step: Callable[[BisectStep], None]
    budget: int = 0
    runs: dict[str, _Run] = field(default_factory=dict)
    steps: list[BisectStep] = field(default_factory=list)

    def run(self, revision: str) -> _Run:
        """Records a revision; one that cannot be prepared has a reason instead of a peak."""
        with self.listener.busy(phrase("bisect.busy", name=revision[:12])):
            return self._run(revision, self.listener)

    def run_first(self, middle: str) -> list[_Run]:
        """Records the good and the bad end; at the same time, with the middle, if no run changes another one's memory.

        Args:
            middle: The revision to test after both ends; the bad end if there is no other revision.
        """
        ends = (self.revisions.good, self.revisions.bad)
        if self.order.device is None or not self.revisions.is_separate:
            return [self.run(end) for end in ends]
        chosen = dict.fromkeys((*ends, middle))
        shown = phrase("bisect.busy", name=", ".join(each[:12] for each in chosen))
        with self.listener.busy(shown), ThreadPoolExecutor(len(chosen)) as threads:
            return list(threads.map(lambda each: self._run(each, SILENT), chosen))[: len(ends)]

    def _run(self, revision: str, listener: Listener) -> _Run:
        try:
            prepared = self.ahead.get(revision)
        except MemdiagError as error:
            made = _Run(None, None, False, error.message, 0.0, "")
        else:
            made = _recorded(self.order, prepared, self.order.folder / revision[:12], listener)
        self.runs[revision] = made
        return made

    def judge(self, revision: str) -> str:
        """Returns whether a revision is good, bad or skipped, and reports it."""
        run = self.runs.get(revision) or self.run(revision)
        status: Literal["good", "bad", "skipped"]
        if run.is_oom or (run.peak is not None and not run.why and run.peak > self.budget):
            status = "bad"
        else:
            status = "skipped" if run.why or run.peak is None else "good"
        step = BisectStep(
            revision[:12], self.revisions.title(revision), status, run.peak, run.why, round(run.seconds, 1), run.folder
        )
        self.steps.append(step)
        self.on_step(step)
        return status


def bisect(
    order: BisectOrder,
    revisions: Revisions,
    listener: Listener = SILENT,
    on_step: Callable[[BisectStep], None] = lambda _: None,
) -> BisectReport:
    """Searches the first bad commit or version.

    Args:
        order: The command and the limit.
        revisions: The commits or versions.
        listener: Receives progress.
        on_step: Called after each judged run.

    Raises:
        MemdiagError: The good end is over the budget, the bad one within it (exit status 1), or one of them cannot be
            measured.
    """
    with Ahead(revisions, order.command) as ahead:
        return _searched(_BisectSearch(order, revisions, ahead, listener, on_step))


def _searched(search: _BisectSearch) -> BisectReport:
    order, revisions = search.order, search.revisions
    search.ahead.expect([revisions.good, revisions.bad])
    first = revisions.candidates({revisions.good}, revisions.bad)
    search.ahead.expect(first[:1])
    names = {"good": revisions.good[:12], "bad": revisions.bad[:12]}
    search.listener.say(phrase("bisect.start", **names, count=len(first), runs=2 + (len(first) - 1).bit_length()))
    search.budget = _budget(order, search.run_first(first[0]), (revisions.good, revisions.bad))
    _check_ends(search)
    good, bad, skipped = {revisions.good}, revisions.bad, set[str]()
    last = revisions.good
    while True:
        left = revisions.candidates(good, bad)
        middle = next((each for each in left if each != bad and each not in skipped), None)
        if middle is None:
            break
        for known in ((good | {middle}, bad), (good, middle)):  # the next one, if this one is good or bad
            search.ahead.expect(revisions.candidates(*known)[:1])
        status = search.judge(middle)
        if status == "good":
            good.add(middle)
            last = middle
        elif status == "bad":
            bad = middle
        else:
            skipped.add(middle)
    return _report(search, last, bad, left)


def _budget(order: BisectOrder, ends: Sequence[_Run], names: Sequence[str]) -> int:
    """Returns the limit: the given one, else the middle between both peaks, at least 1 % above the good one."""
    for run, name in zip(ends, names, strict=True):
        if run.why and not run.is_oom:
            raise MemdiagError(
                phrase("bisect.end", name=name[:12], why=run.why),
                phrase("bisect.end.hint", file=str(Path(run.folder or order.folder, OUTPUT))),
            )
    if order.budget_bytes is not None:
        return order.budget_bytes
    low, high = ends[0].peak, ends[1].peak
    if low is None or high is None or ends[0].is_oom:
        raise MemdiagError(phrase("bisect.no-budget"), phrase("bisect.no-budget.hint"))
    return max((low + high) // 2, int(low * (1 + SHARE)))


def _check_ends(search: _BisectSearch) -> None:
    good, bad = (search.judge(end) for end in (search.revisions.good, search.revisions.bad))
    limit = format_bytes(search.budget)
    peaks = {name: format_bytes(search.runs[end].peak) for name, end in _ends(search)}
    if good != "good":
        raise MemdiagError(
            phrase("bisect.good-is-bad", peak=peaks["good"], limit=limit), phrase("bisect.good-is-bad.hint")
        )
    if bad != "bad":
        raise MemdiagError(
            phrase("bisect.bad-is-good", peak=peaks["bad"], limit=limit),
            phrase("bisect.bad-is-good.hint"),
            BUDGET_HIT,
        )


def _ends(search: _BisectSearch) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("good", search.revisions.good), ("bad", search.revisions.bad)


def _report(search: _BisectSearch, last_good: str, bad: str, left: Sequence[str]) -> BisectReport:
    order, package = search.order, search.order.package
    sites = _grown(search.runs[last_good], search.runs[bad], order)
    title = search.revisions.title(bad)
    name = f"{package} {bad}" if package else f"{bad[:12]} ({title})" if title else bad[:12]
    if len(left) > 1:
        verdict = phrase("bisect.hidden", count=len(left))
    else:
        was, now = (format_bytes(search.runs[each].peak) for each in (last_good, bad))
        word = "bisect.found.oom" if search.runs[bad].is_oom else "bisect.found"
        verdict = phrase(word, name=name, metric=METRICS[order.metric], was=was, now=now)
    return BisectReport(
        package,
        METRICS[order.metric],
        search.budget,
        tuple(search.steps),
        last_good[:12],
        bad[:12] if len(left) == 1 else "",
        tuple(each[:12] for each in left),
        sites,
        verdict,
    )


def _recorded(order: BisectOrder, prepared: Prepared, folder: Path, listener: Listener) -> _Run:
    """Records the command in a process of its own, with its output in a file."""
    device = [] if order.device is None else ["--phantom", order.device]
    words = [*own_memdiag(), "record", "--quiet", *device, "-o", str(folder), "--", *prepared.command]
    folder.parent.mkdir(parents=True, exist_ok=True)
    output = folder.with_name(f"{folder.name}.txt")  # moved afterwards: the folder of a run must be empty
    start = time.monotonic()
    with output.open("wb") as file:
        done = subprocess.run(  # noqa: S603 - the user's command
            words, cwd=prepared.folder, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    seconds = time.monotonic() - start
    folder.mkdir(exist_ok=True)
    output.rename(folder / OUTPUT)
    shown = os.path.relpath(folder)
    peak, trace = _peak(folder, order.metric, listener)
    if done.returncode == 0:
        why = "" if peak is not None else phrase("bisect.nothing")
        return _Run(peak, trace, False, why, seconds, shown)
    if _ran_out(folder):
        return _Run(peak, trace, True, phrase("bisect.oom"), seconds, shown)
    return _Run(None, None, False, phrase("bisect.failed", status=str(done.returncode)), seconds, shown)


def _ran_out(folder: Path) -> bool:
    """Returns whether a run ended because of memory: its manifest lists failed allocations, or its output has one."""
    from memdiag.oom.read import read_files

    manifest = folder / "manifest.json"
    if manifest.exists():
        contents = json.loads(manifest.read_text(encoding="utf-8"))
        if any(process.get("ooms") for process in contents.get("processes") or ()):
            return True
    return any(not message.is_warning for message in read_files([folder / OUTPUT]).messages)


def _peak(folder: Path, metric: str, listener: Listener) -> tuple[int | None, Path | None]:
    """Returns the highest peak of all processes and devices, and its trace."""
    found: tuple[int | None, Path | None] = (None, None)
    for path in sorted(folder.glob("rank*.pkl")):
        for device in listener.read_trace(path).devices:
            value = device.usage_at(device.peak(metric))[metric]
            if value >= 0 and (found[0] is None or value > found[0]):
                found = value, path
    return found


def _grown(good: _Run, bad: _Run, order: BisectOrder) -> tuple[GrownSite, ...]:
    """Returns the call sites that grew most between two recordings."""
    from memdiag.compare.report import compare
    from memdiag.compare.side import sides

    if good.trace is None or bad.trace is None:
        return ()
    at = order.metric if not bad.is_oom else DEFAULT
    chosen = sides([good.trace, bad.trace])
    rows = compare(chosen, at=at, with_findings=False).sites or ()
    inside = innermost_lines(chosen[1].trace, at, order.package) if order.package else {}
    grown = []
    for row in rows:
        was, now = (amount.bytes if amount is not None else 0 for amount in row.amounts)
        if now > was:
            label = row.label if row.places[1] is None else row.places[1].label
            grown.append(GrownSite(label, was, now, inside.get(label, "")))
    return tuple(sorted(grown, key=lambda site: site.good_bytes - site.bad_bytes)[:_MOST_SITES])
