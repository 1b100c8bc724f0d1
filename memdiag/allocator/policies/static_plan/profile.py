"""Input of a plan: the tensors of initialisation, permanent ones, and one step of a recording, as lifetimes.

Time is the number of the call. The step with the highest peak is planned. A request that is smaller than its slot can
use it; a larger one cannot. A step is a cycle: tensors that live into the next step (gradients that live until they are
set to None, the last output) continue from the end to the beginning. The cycle is cut where the fewest bytes live
across the cut.

A tensor may live a little longer than a step, so that a new one is allocated before the old one is freed. There are two
solutions. The cycle can be two steps long, with separate offsets for even and odd steps. Otherwise such requests rove:
they have an area in addition to the plan, in which each uses the range of the one that was just freed. ``script`` tries
both and uses the better one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.workload import Workload
from memdiag.trace.table import Array

GRAIN = 512
_MOST_TURNS = 2
_ABOUT = 0.99
_WHOLE = 0.6
_WORTH = 0.002  # fraction of the peak that a second turn must save


@dataclass(frozen=True)
class Span:
    """One step: its number in the recording, its first call, and the call after its last."""

    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class Requests:
    """The requests of the default pool, in order.

    Attributes:
        call: Number of the call (int64).
        size: Bytes, rounded up to GRAIN (int64).
        stream: Index into the workload's streams.
        site: Number of the allocation site; -1: unknown.
        death: The call that completes its free; the number of calls: never (int64).
    """

    call: Array
    size: Array
    stream: Array
    site: Array
    death: Array

    @classmethod
    def of(cls, workload: Workload, pool: Array, site: Array) -> Requests:
        """Returns the requests of a workload in which every request has a pool."""
        num_calls = len(workload.op)
        call = np.flatnonzero((workload.op == w.ALLOC) & (workload.size > 0) & (workload.tensor >= 0) & (pool == 0))
        died = np.full(workload.num_tensors + 1, num_calls, np.int64)
        ends = np.flatnonzero(((workload.op == w.FREE) | (workload.op == w.FREE_COMPLETED)) & (workload.tensor >= 0))[
            ::-1
        ]
        died[workload.tensor[ends]] = ends  # in reverse order: the first of several remains
        size = -(-workload.size[call].astype(np.int64) // GRAIN) * GRAIN
        return cls(
            call,
            size,
            workload.stream[call].astype(np.int64),
            site[call],
            np.maximum(died[workload.tensor[call]], call + 1),
        )

    @property
    def kind(self) -> Array:
        """Returns an identity that repeats in each step: the allocation site if known, otherwise the size (int64)."""
        kind: Array = np.where(self.site < 0, -1 - self.size // GRAIN, self.site)
        return kind

    def within(self, span: Span) -> Array:
        """Returns the rows of a step."""
        rows: Array = np.flatnonzero((self.call >= span.begin) & (self.call < span.end))
        return rows

    def _live(self, num_calls: int) -> Array:
        change = np.zeros(num_calls + 1, np.int64)
        np.add.at(change, self.call, self.size)
        np.add.at(change, self.death, -self.size)
        return np.cumsum(change)

    def most_live(self, num_calls: int) -> int:
        """Returns the peak of live bytes."""
        return int(self._live(num_calls).max(initial=0))

    def peaks(self, spans: list[Span], num_calls: int) -> Array:
        """Returns the peak of live bytes in each span."""
        live = self._live(num_calls)
        return np.array([int(live[span.begin : span.end].max(initial=0)) for span in spans], np.int64)


def spans_of(step: Array) -> list[Span]:
    """Returns the steps of calls, given their step numbers (-1: none); each step lasts until the next one begins."""
    inside = np.flatnonzero(step >= 0)
    if not len(inside):
        return []
    begins = inside[np.append(True, step[inside][1:] != step[inside][:-1])]
    ends = np.append(begins[1:], len(step))
    return [Span(int(step[begin]), int(begin), int(end)) for begin, end in zip(begins, ends, strict=True)]


@dataclass(frozen=True)
class Slots:
    """Requests with slots in a plan, in program order, and the lifetimes of the slots.

    Attributes:
        row: Rows of ``Requests``.
        lower, upper: Lifetimes in the time of the plan: initialisation as recorded, then the step, cut open (int64).
            Slots of a step may have one lifetime per turn (turns x slots). A lifetime may end after the last turn; it
            then continues in the first.
    """

    row: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class Roving:
    """Requests without a fixed place.

    Attributes:
        row: Rows of ``Requests`` in the step.
        born, gone: Their lifetimes in three consecutive steps (3 x rows).
        early: Rows of initialisation that correspond to these requests.
    """

    row: Array
    born: Array
    gone: Array
    early: Array


@dataclass(frozen=True)
class StepProfile:
    """The tensors to plan.

    Attributes:
        spans: The steps of the recording.
        planned: Index of the planned step; -1: there are no steps, and the whole recording counts as initialisation.
        begin, end: Begin and end of the cycle in the time of the plan.
        scripts: Slots of initialisation, of the step, and of permanent tensors that steps leave.
        roving: Requests of the step without a slot.
    """

    spans: list[Span]
    planned: int
    begin: int
    end: int
    scripts: tuple[Slots, Slots, Slots]
    roving: Roving

    @property
    def turns(self) -> int:
        """Number of steps in the cycle."""
        return len(self.scripts[1].lower) if self.scripts[1].lower.ndim > 1 else 1


def profile_of(requests: Requests, spans: list[Span], num_calls: int, *, roves: bool = False) -> StepProfile:
    """Chooses the step with the highest peak, and lays out the tensors to plan.

    Args:
        requests, spans: Requests and steps of the recording.
        num_calls: Number of calls of the recording.
        roves: Whether tensors that outlive a step rove; otherwise they have separate offsets for even and odd steps.
    """
    none = np.empty(0, np.int64)
    nobody = Roving(none, none, none, none)
    if not spans:
        every = np.arange(len(requests.call))
        alone = (Slots(every, requests.call, requests.death), Slots(none, none, none), Slots(none, none, none))
        return StepProfile([], -1, num_calls, num_calls, alone, nobody)
    peaks = requests.peaks(spans, num_calls)
    planned = _most_telling(requests, spans, peaks)
    span, start = spans[planned], spans[0].begin
    length, is_last = span.end - span.begin, _is_last(requests, spans, planned)
    # Tensors that the next step does not free are permanent. After the last step this is unknown, so a tensor that is
    # still live at the end is assumed to live to the end of the step.
    until = num_calls + 1 if is_last else spans[planned + 1].end  # frees from here on do not count
    inside = requests.within(span)
    stays = requests.death[inside] >= until
    if not is_last:
        stays |= _is_left(requests, inside, length, requests.within(spans[planned + 1]))
    of_step = inside[~stays]
    born, death, size = requests.call[of_step] - span.begin, requests.death[of_step], requests.size[of_step]
    life = np.minimum(death, span.end) - requests.call[of_step]
    if not is_last:
        life += np.clip(death - span.end, 0, length)
    outlives = life > length
    turns, roving = 1, nobody
    if roves:
        born_in = born[outlives] + length * np.arange(3)[:, None]
        dies_in_first = (requests.call < start) & (requests.death > start) & (requests.death < spans[0].end)
        early_ones = np.flatnonzero(dies_in_first & np.isin(requests.size, size[outlives]))
        roving = Roving(of_step[outlives], born_in, born_in + life[outlives], early_ones)
        of_step, born, size, life = of_step[~outlives], born[~outlives], size[~outlives], life[~outlives]
    elif int(size[outlives].sum()) > _WORTH * peaks[planned]:
        turns = _MOST_TURNS
    # the frees of the last step's remaining tensors are unknown
    cut = 0 if is_last else _cheapest_cut(born, np.minimum(life, length), size, length)
    lower = start + (born - cut) % length + length * np.arange(turns)[:, None]
    end = start + turns * length

    early = np.setdiff1d(np.flatnonzero(requests.call < start), roving.early)
    gone = requests.death[early]
    # tensors freed within the first step, which begins before the cut
    in_first = start + np.maximum(gone - spans[0].begin - cut, 0)
    early_upper = np.where(gone <= start, gone, np.where(gone < spans[0].end, np.minimum(in_first, end), end))
    before = np.flatnonzero((requests.call >= start) & (requests.call < span.begin) & (requests.death > span.begin))
    if is_last:  # at its end, a run frees its permanent tensors
        remains = (requests.death[before] >= num_calls) | ~np.isin(requests.kind[before], requests.kind[inside])
    else:
        remains = requests.death[before] >= until
    kept = np.union1d(before[remains], inside[stays])
    return StepProfile(
        spans,
        planned,
        start,
        end,
        (
            Slots(early, requests.call[early], np.maximum(early_upper, requests.call[early] + 1)),
            Slots(of_step, lower, lower + np.minimum(life, turns * length)),
            Slots(kept, np.full(len(kept), start), np.full(len(kept), end)),
        ),
        roving,
    )


def _most_telling(requests: Requests, spans: list[Span], peaks: Array) -> int:
    """Returns the step to plan: the one with the highest peak.

    Among complete steps with similar peaks, it is the first that leaves the fewest bytes.
    """
    near = np.flatnonzero(peaks >= _ABOUT * peaks.max()).tolist()
    near = near[:-1] if len(near) > 1 and near[-1] == len(spans) - 1 else near  # the frees of the last step are unknown
    rows = {k: requests.within(spans[k]) for k in near}
    most = max(len(of) for of in rows.values())

    def left_bytes(k: int) -> int:
        until = spans[min(k + 1, len(spans) - 1)].end
        return int(requests.size[rows[k]][requests.death[rows[k]] >= until].sum())

    return min([k for k in near if len(rows[k]) >= _WHOLE * most], key=left_bytes)


def _is_left(requests: Requests, rows: Array, length: int, following: Array) -> Array:
    """Returns whether requests that outlive a step are never repeated, so that they are permanent (bool)."""
    outlives = requests.death[rows] - requests.call[rows] > length
    left: Array = outlives & ~np.isin(requests.kind[rows], requests.kind[following])
    return left


def _is_last(requests: Requests, spans: list[Span], planned: int) -> bool:
    """Returns whether only a part of a step follows; the step is then placed as recorded, as if it did not repeat."""
    if planned + 2 == len(spans):
        own, following = (len(requests.within(span)) for span in spans[planned:])
        return following < _WHOLE * own
    return planned + 1 == len(spans)


def _cheapest_cut(born: Array, life: Array, size: Array, length: int) -> int:
    """Returns the moment of a step across which the fewest bytes live."""
    change = np.zeros(2 * length + 2, np.int64)
    np.add.at(change, born + 1, size)
    np.add.at(change, born + life, -size)
    across = np.cumsum(change)[: 2 * length]
    return int(np.argmin(across[:length] + across[length:]))
