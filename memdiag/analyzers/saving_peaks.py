"""Host memory that saving a checkpoint needs for a moment.

A recording samples the host before and after each save (``torch.save``, torch.distributed.checkpoint, safetensors). The
kernel counts the highest resident memory of a process, so no peak is missed that is the highest of the run so far.
Copies that the program makes before it calls the function count too. The cost of a save is memory that the program
needed neither before nor after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.context import Context
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.model import Trace
from memdiag.trace.table import Table
from memdiag.units import GIB, MIB, format_bytes

CODES: dict[str, str] = {"MD153": "saving a checkpoint needs much host memory"}

FLOOR = 256 * MIB
SHARE = 0.1  # fraction of the resident memory
WARNING_FLOOR = 4 * GIB
LIMIT_SHARE = 0.85  # fraction of the cgroup's limit
BEFORE_US, AFTER_US = 60_000_000, 10_000_000  # samples before and after a save that count
_SAVE, _SAVED = (schema.OCCASIONS.index(when) for when in ("save", "saved"))


@dataclass(frozen=True)
class Save:
    """One save of a checkpoint.

    Attributes:
        peak: Highest resident bytes, during the save or while the program prepared it.
        before, after: Lowest resident bytes in the minute before it, and in the ten seconds after it.
        step: Number of completed training steps.
    """

    peak: int
    before: int
    after: int
    step: int

    @property
    def temporary(self) -> int:
        """Bytes in memory for this save only."""
        return self.peak - max(self.before, self.after)


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:  # noqa: ARG001 - as of every analyzer
    """Yields finding MD153 for the save that needs most."""
    saves = find_saves(trace.host_samples)
    if not saves:
        return
    worst = max(saves, key=lambda save: save.temporary)
    base = max(worst.before, worst.after)
    if worst.temporary < max(FLOOR, SHARE * base):
        return
    limit = _limit(trace)
    is_much = worst.temporary >= WARNING_FLOOR or (limit > 0 and worst.peak >= LIMIT_SHARE * limit)
    yield Finding(
        "MD153",
        phrase("host.saving.title", bytes=format_bytes(worst.temporary)),
        "warning" if is_much else "info",
        None,
        tuple(_evidence(worst, limit, len(saves))),
        tuple(_fixes(trace)),
        weight_bytes=worst.temporary,
    )


def find_saves(samples: Table) -> list[Save]:
    """Returns the saves that the samples show from beginning to end."""
    begins, ends = (np.flatnonzero((samples.when == when) & (samples.rss >= 0)).tolist() for when in (_SAVE, _SAVED))
    found = []
    for number, begin in enumerate(begins):
        next_begin = begins[number + 1] if number + 1 < len(begins) else len(samples)
        inside = [end for end in ends if begin < end < next_begin]
        earlier = ends[: np.searchsorted(ends, begin)]
        if inside:
            found.append(_save(samples, (earlier[-1] + 1 if earlier else 0, begin, inside[-1], next_begin)))
    return found


def _save(samples: Table, rows: tuple[int, int, int, int]) -> Save:
    """Returns a save from its rows: the first that counts, its begin, its end, and the begin of the next save."""
    start, begin, end, stop = rows
    time, rss = samples.time_us, samples.rss
    known = rss >= 0
    before = known & (time >= time[begin] - BEFORE_US)
    before[:start] = before[begin + 1 :] = False
    after = known & (time <= time[end] + AFTER_US)
    after[:end] = after[stop:] = False
    peak = int(rss[begin : end + 1].max())
    if samples.peak_rss[end] > samples.peak_rss[begin] >= 0:
        peak = max(peak, int(samples.peak_rss[end]))
    return Save(peak, int(rss[before].min()), int(rss[after].min()), int(samples.step[begin]))


def _limit(trace: Trace) -> int:
    """Returns the limit of the cgroup, or 0 if there is none."""
    return int(trace.host_samples.cgroup_limit.max(initial=0))


def _evidence(worst: Save, limit: int, count: int) -> Iterator[Evidence]:
    yield Evidence(phrase("host.saving.peak"), worst.peak, "bytes", phrase("host.saving.step", step=worst.step))
    yield Evidence(phrase("host.saving.before"), worst.before, "bytes")
    yield Evidence(phrase("host.saving.after"), worst.after, "bytes")
    yield Evidence(phrase("host.saving.temporary"), worst.temporary, "bytes")
    if limit > 0:
        yield Evidence(phrase("host.saving.limit"), limit, "bytes")
    yield Evidence(phrase("host.saving.count"), count, "")


def _fixes(trace: Trace) -> Iterator[Fix]:
    world = trace.recorded.world if trace.recorded is not None else None
    for name in ("copies",) if world == 1 else ("copies", "shards", "turns"):
        yield Fix(
            phrase(f"host.saving.fix.{name}"),
            "code",
            phrase("host.saving.fix.shards.change") if name == "shards" else "",
            phrase(f"host.saving.fix.{name}.when"),
            phrase(f"host.saving.fix.{name}.caveat"),
        )
