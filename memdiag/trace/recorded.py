"""Maps the marks of a recorder to the events of a device: phases, steps, modules and the identity of tensors.

A mark stores its time as counts (blocks allocated and freed so far, which is exact) or as clock time; see
``memdiag.recorder.marks``. A tensor was seen at an address at a mark: it is the lifecycle at that address that was live
then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from memdiag.trace import schema
from memdiag.trace.distinct import distinct
from memdiag.trace.model import DeviceTrace
from memdiag.trace.phases import EventPhases
from memdiag.trace.recording import HeldTensor, ProcessMarks
from memdiag.trace.table import Array
from memdiag.trace.threads import event_threads, of_each_thread

PHASE, STEP, MARK, LOOK, OOM = range(5)
UNNAMED = -1
_MOST_SIGHTINGS = 1 << 22  # genuine recordings have far fewer; a hostile one may have any number per row
_MOST_MOMENTS = 200  # number of marks at which views into larger blocks are searched: each search walks all tensors
_UNKNOWN, _INITIALISATION, _FORWARD, _BACKWARD, _OPTIMIZER, _OUTSIDE = range(len(schema.PHASES))
_INPUT = schema.CATEGORIES.index("input")
_NS = 1000


def place(recorded: ProcessMarks, device: DeviceTrace, columns: Mapping[str, Array]) -> Array:
    """Returns, for each row, the first event after it (int64).

    The value is num_events after the last event, or -1 if the row cannot be placed.
    """
    where = np.full(len(columns["time_ns"]), -1, np.int64)
    clock = device.events.time_us
    if len(clock) and (clock >= 0).any():
        # Event times are truncated to microseconds, and some microseconds pass between a mark and the next allocation.
        ends = (np.maximum.accumulate(clock) + 1) * _NS
        where = np.searchsorted(ends, columns["time_ns"], side="right").astype(np.int64)
    else:
        where[: next(iter(np.flatnonzero(columns["allocs"] >= 0)), 0)] = 0  # made before the first use of the device
    counts = recorded.counts.get(device.device)
    counted = (columns["allocs"] >= 0) & (columns["device"] == device.device)
    if counts is not None and counted.any():
        allocs = np.flatnonzero(device.events.action == schema.ALLOC) + 1
        frees = _ends_of_frees(device)
        # The counters are read after the events, when tensors may have been freed: at most as many frees are missing as
        # allocations.
        missing = max(counts[0] - len(allocs), 0)
        after_alloc = _after(allocs, columns["allocs"], missing)
        after_free = _after(frees, columns["frees"], min(max(counts[1] - len(frees), 0), missing))
        where = np.where(counted, np.maximum(after_alloc, after_free), where)
        if "kind" in columns:
            _around_ooms(where, columns, device)
    return where


def phases_of(recorded: ProcessMarks, device: DeviceTrace) -> EventPhases | None:
    """Returns phase and step of every event, or None if no mark identifies a training phase."""
    kind, value, n = recorded.marks["kind"], recorded.marks["value"], device.num_events
    where = place(recorded, device, recorded.marks)
    phases = np.flatnonzero((kind == PHASE) & (where >= 0) & (value > _UNKNOWN) & (value < len(schema.PHASES)))
    trains = np.isin(value[phases], (_FORWARD, _BACKWARD, _OPTIMIZER))
    if not trains.any():
        return None

    def timeline(chosen: Array) -> Array:
        number = value[phases[chosen]]
        # A loss computed from the model's output is between the end of forward and the beginning of backward.
        loss = (number[1:-1] == _OUTSIDE) & (number[:-2] == _FORWARD) & (number[2:] == _BACKWARD)
        number[1:-1][loss] = _FORWARD
        return _spread(where[phases[chosen]], number, n, _UNKNOWN).astype(np.int8)

    thread = event_threads(recorded, device)
    of_mark = recorded.marks["thread"][phases]
    phase, others = of_each_thread(thread, of_mark, timeline)
    first = where[phases[trains][0]]
    if thread is not None and np.isin(of_mark[trains], list(others)).all():  # other threads run the model
        phase[(thread == 0) & (np.arange(n) >= first)] = _OUTSIDE
    for other in others.values():  # autograd's threads run the backward of any thread
        phase[(thread == 0) & (other == _BACKWARD) & ~np.isin(phase, (_FORWARD, _OPTIMIZER))] = _BACKWARD
    ends = where[(kind == STEP) & (where >= 0)]
    if not len(ends) and not recorded.ended.optimizers:
        ends = where[_next_passes(phases[trains], value)]
    requests = np.isin(device.events.action, (schema.ALLOC, schema.OOM))
    # zero_grad() after step() belongs to the preceding step. A recording of counters has no requests.
    asks = np.append(np.flatnonzero(requests) if requests.any() else np.arange(n), n)
    starts = np.append(first, asks[np.searchsorted(asks, ends)])
    begins = np.zeros(n + 1, np.int32)
    np.add.at(begins, starts, 1)
    before = int(value[kind == STEP][0]) - 1 if (kind == STEP).any() else 0
    step = np.where(np.arange(n) >= first, np.cumsum(begins[:n]) - 1 + before, -1).astype(np.int32)
    return EventPhases(phase, step, "marks", "marks", thread)


def _next_passes(marks: Array, value: Array) -> Array:
    """Returns the forward marks that follow a backward, in a program that updates its weights without an optimizer."""
    number = value[marks]
    if (number == _OPTIMIZER).any():
        return marks[:0]
    follows = np.append(False, (number[1:] == _FORWARD) & (number[:-1] == _BACKWARD))
    found: Array = marks[follows]
    return found


def seen_in(recorded: ProcessMarks, device: DeviceTrace) -> tuple[Array, Array]:
    """Returns category (int8, 0: unknown) and name (index into ``names``, -1: none) of every tensor that was seen."""
    tensors = device.tensors
    category, name = np.zeros(len(tensors), np.int8), np.full(len(tensors), UNNAMED, np.int64)
    where = place(recorded, device, recorded.marks)
    rows = np.flatnonzero(recorded.tensors["device"] == device.device)
    if not len(rows) or not len(tensors) or not len(where):
        return category, name
    # The marks of each kind, one kind after the other, each event once.
    key = recorded.marks["kind"] << 32 | recorded.marks["value"]
    order = np.lexsort((np.arange(len(key)), key))
    is_new = np.append(True, (key[order][1:] != key[order][:-1]) | (where[order][1:] != where[order][:-1]))
    moment = np.empty(len(key), np.int64)
    moment[order] = np.cumsum(is_new) - 1
    at = where[order][is_new]
    first, last = recorded.tensors["first"][rows], recorded.tensors["last"][rows]
    good = (first >= 0) & (last >= first) & (last < len(key))
    rows, first, last = rows[good], first[good], last[good]
    end = moment[last]
    begin = np.where(key[first] == key[last], np.minimum(moment[first], end), end)
    row, tensor = _sighted(device, recorded.tensors["addr"][rows], begin, end, at)
    # A parameter may also be passed to a module as an input, as compiled code does with all of them; its own category
    # wins.
    order = np.argsort(recorded.tensors["category"][rows[row]] != _INPUT, kind="stable")
    row, tensor = row[order], tensor[order]
    category[tensor] = recorded.tensors["category"][rows[row]]
    name[tensor] = recorded.tensors["name"][rows[row]]
    return category, name


def module_at(recorded: ProcessMarks, device: DeviceTrace) -> Array:
    """Returns, for every event, the name of the module whose code ran, or -1."""
    where = place(recorded, device, recorded.modules)
    rows = np.flatnonzero(where >= 0)

    def timeline(chosen: Array) -> Array:
        return _spread(where[rows[chosen]], recorded.modules["name"][rows[chosen]], device.num_events, UNNAMED)

    of_row = recorded.modules["thread"][rows]
    return of_each_thread(event_threads(recorded, device), of_row, timeline)[0]


def held_in(recorded: ProcessMarks, device: DeviceTrace) -> list[tuple[int, HeldTensor]]:
    """Returns the tensors of a device whose holders are known: row of Tensors, and what was found."""
    found = [held for held in recorded.holders if held.device == device.device]
    if not found or not len(device.tensors):
        return []
    addr = np.array([held.addr for held in found], np.int64)
    mark = np.array([held.mark for held in found], np.int64)
    row, tensor = _sighted(device, addr, mark, mark, place(recorded, device, recorded.marks))
    return [(int(there), found[which]) for which, there in zip(row.tolist(), tensor.tolist(), strict=True)]


def sampled_at(recorded: ProcessMarks, device: DeviceTrace) -> Array:
    """Returns, for each sample of a device, the first event after it (int64), or -1 if unknown."""
    samples = device.samples
    number = np.full(len(samples), device.device, np.int64)
    columns = {"time_ns": samples.time_us * _NS, "allocs": samples.allocs, "frees": samples.frees, "device": number}
    return place(recorded, device, columns) if device.num_events else np.full(len(samples), -1, np.int64)


def _around_ooms(where: Array, columns: Mapping[str, Array], device: DeviceTrace) -> None:
    """Places marks made before an out-of-memory event before it and others after it, since it changes no count."""
    marks = np.flatnonzero((columns["kind"] == OOM) & (columns["device"] == device.device)).tolist()
    events = np.flatnonzero(device.events.action == schema.OOM).tolist()
    # The oldest events may have been overwritten.
    for mark, event in zip(reversed(marks), reversed(events), strict=False):
        where[mark] = event
        before = where[:mark]
        before[before > event] = event
        after = where[mark + 1 :]
        after[(after >= 0) & (after <= event)] = event + 1


def _ends_of_frees(device: DeviceTrace) -> Array:
    """Returns, for each free, the event after it.

    A free that is completed at once is a single call, and no mark can fall within it.
    """
    events = device.events
    ends = np.flatnonzero(events.action == schema.FREE_REQUESTED) + 1
    following = np.minimum(ends, device.num_events - 1)
    at_once = (ends < device.num_events) & (events.action[following] == schema.FREE_COMPLETED)
    at_once &= events.tensor[following] == events.tensor[ends - 1]
    after: Array = ends + at_once
    return after


def _after(ends: Array, count: Array, missing: int) -> Array:
    """Returns the event after the one that reached a count, or 0 if that was before the first retained event.

    Args:
        ends: For each retained event of the kind, the event after it.
        count: Events of the kind so far.
        missing: Events of the kind before the first retained one.
    """
    after: Array = np.append(0, ends)[np.clip(count - missing, 0, len(ends))]
    return after


def _spread(where: Array, value: Array, n: int, before: int) -> Array:
    """Returns, for each of n events, the value of the last row placed at or before it."""
    order = np.argsort(where, kind="stable")
    bounds = np.concatenate(([0], np.clip(where[order], 0, n), [n]))
    spread: Array = np.repeat(np.append(before, value[order]), np.diff(bounds))
    return spread


def _sighted(device: DeviceTrace, addr: Array, begin: Array, end: Array, at: Array) -> tuple[Array, Array]:
    """Returns which rows saw which tensors, the later ones last.

    Args:
        device: The device.
        addr: The address at which each row saw a tensor.
        begin, end: Range of marks at which it was seen, ``end`` included.
        at: The event before which each mark is placed, or -1 if unknown.
    """
    lifecycles = _Lifecycles.of(device)
    # A tensor that is live at both ends was live throughout: parameters, optimizer state.
    there = lifecycles.alive(addr, at[end])
    begin = np.where((there >= 0) & (lifecycles.alive(addr, at[begin]) == there), end, begin)
    if (end - begin + 1).sum() > _MOST_SIGHTINGS:
        begin = np.maximum(begin, end - max(_MOST_SIGHTINGS // len(end), 1) + 1)
    times = end - begin + 1
    row = np.repeat(np.arange(len(addr)), times)
    moment = np.repeat(begin, times) + np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)
    when = at[moment]
    found = lifecycles.alive(addr[row], when)
    inside = np.flatnonzero((found < 0) & (when >= 0) & (addr[row] > 0))
    found[inside] = _within(device, addr[row[inside]], when[inside])
    hit = found >= 0
    return row[hit], found[hit]


@dataclass(frozen=True)
class _Lifecycles:
    """The tensors of a device by address and time. ``key`` is ascending: index of the address, then allocation."""

    device: DeviceTrace
    places: Array
    key: Array
    row: Array

    @classmethod
    def of(cls, device: DeviceTrace) -> _Lifecycles:
        places, place = distinct(device.tensors.addr)
        key = place.astype(np.int64) * (device.num_events + 2) + device.tensors.alloc_at + 1
        order = np.argsort(key, kind="stable")
        return cls(device, places, key[order], order)

    def alive(self, addr: Array, at: Array) -> Array:
        """Returns the tensor live at each address just before event ``at``, or -1."""
        tensors = self.device.tensors
        wanted = np.searchsorted(self.places, addr)
        known = (
            (wanted < len(self.places)) & (self.places[np.minimum(wanted, len(self.places) - 1)] == addr) & (at >= 0)
        )
        candidate = np.searchsorted(self.key, wanted * (self.device.num_events + 2) + at, side="right") - 1
        row = self.row[np.maximum(candidate, 0)]
        alive = known & (candidate >= 0) & (tensors.addr[row] == addr) & (tensors.alloc_at[row] < at)
        found: Array = np.where(alive & (tensors.free_requested_at[row] >= at), row, -1)
        return found


def _within(device: DeviceTrace, addr: Array, at: Array) -> Array:
    """Returns the tensor whose block contains each address just before event ``at`` (a view into a bucket).

    The value is -1 if there is none, or if it was not searched.
    """
    tensors, found = device.tensors, np.full(len(addr), -1, np.int64)
    for moment in np.unique(at)[-_MOST_MOMENTS:].tolist():
        rows = np.flatnonzero(at == moment)
        live = device.live(moment - 1)
        if not len(live):
            continue
        live = live[np.argsort(tensors.addr[live])]
        below = np.searchsorted(tensors.addr[live], addr[rows], side="right") - 1
        row = live[np.maximum(below, 0)]
        holds = (below >= 0) & (addr[rows] < tensors.addr[row] + tensors.block_bytes[row])
        found[rows] = np.where(holds, row, -1)
    return found
