"""The largest tensors of a device over time.

The page stacks them as bands, each from its tensor's allocation to its free.

A page cannot stack a million tensors. It gets the largest ones and one curve for the sum of all others, so the stack is
as high as the active bytes. The browser computes the positions of bands in the stack, column by column of the screen.

A long training run repeats itself: its largest tensors are the same few of each step. For such a run there is a second
selection: the largest tensors of the step with the highest peak, and the lowest and highest bytes of each step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array
from memdiag.views import timeline

MOST_BANDS = 2000
FEWEST_STEPS = 3  # with fewer, the whole run shows each of them well enough
_MOST_POINTS = 2000  # of the curve for the other tensors, except events at which a band begins or ends
_MOST_STEPS = 1000  # of the envelope; with more, neighbours share one


@dataclass(frozen=True)
class Bands:
    """The largest tensors of a range of events.

    Attributes:
        first, end: Events of the range, ``end`` excluded; first is -1 for the state before the trace.
        step: Its training step, or -1 for the whole trace.
        rows: Rows of Tensors, in the order of allocation: from the bottom of the stack up.
        at: Events (ascending, the first one is ``first``) that divide the range into parts in which no band begins or
            ends.
        rest_bytes: In each part, the peak of all other tensors together.
        num_others: Number of other tensors that were live in the range.
    """

    first: int
    end: int
    step: int
    rows: Array
    at: Array
    rest_bytes: Array
    num_others: int


def of_run(device: DeviceTrace, most: int = MOST_BANDS) -> Bands:
    """Returns the bands of a whole trace."""
    return _bands(device, -1, device.num_events, -1, most)


def of_worst_step(device: DeviceTrace, most: int = MOST_BANDS) -> Bands | None:
    """Returns the bands of the first step with the highest active bytes.

    It is None with fewer than ``FEWEST_STEPS`` steps.
    """
    steps = timeline.step_starts(device)
    if len(steps["event"]) < FEWEST_STEPS:
        return None
    worst = int(np.argmax(np.maximum.reduceat(_active(device), steps["event"])))
    end = int(np.append(steps["event"], device.num_events)[worst + 1])
    return _bands(device, int(steps["event"][worst]), end, int(steps["step"][worst]), most)


def step_envelope(device: DeviceTrace) -> dict[str, Array]:
    """Returns number, first event, lowest and highest active bytes, and event of the highest, of each step.

    With more than a thousand steps, a row covers several neighbours and has the number of the one with the highest
    bytes.
    """
    steps, active = timeline.step_starts(device), _active(device)
    event, number = steps["event"], steps["step"]
    if len(event) < FEWEST_STEPS:
        return {name: np.empty(0, np.int64) for name in ("step", "event", "low", "high", "at")}
    low, high = np.minimum.reduceat(active, event), np.maximum.reduceat(active, event)
    first = np.arange(0, len(event), -(-len(event) // _MOST_STEPS))
    best = np.array(
        [
            begin + int(np.argmax(high[begin:end]))
            for begin, end in zip(first, np.append(first[1:], len(event)), strict=True)
        ]
    )
    ends = np.append(event, device.num_events)
    at = np.array([ends[row] + int(np.argmax(active[ends[row] : ends[row + 1]])) for row in best], np.int64)
    return {
        "step": number[best],
        "event": event[first],
        "low": np.minimum.reduceat(low, first),
        "high": high[best],
        "at": at,
    }


def stabbing(begin: Array, end: Array) -> Array:
    """Returns the fewest events such that each interval ``[begin, end)`` contains one.

    They are ascending; each is the last event of an interval.
    """
    chosen: list[int] = []
    order = np.lexsort((begin, end))
    for low, high in zip(begin[order].tolist(), end[order].tolist(), strict=True):
        if not chosen or low > chosen[-1]:
            chosen.append(high - 1)
    return np.array(chosen, np.int64)


def _active(device: DeviceTrace) -> Array:
    """Returns the bytes of all tensors after each event.

    They are active bytes, or allocated ones if pending ones are unknown.
    """
    return device.usage.active if (device.usage.active >= 0).any() else device.usage.allocated


def _bands(device: DeviceTrace, first: int, end: int, step: int, most: int) -> Bands:
    tensors = device.tensors
    live = (
        (tensors.alloc_at < end)
        & (tensors.free_completed_at > max(first, 0))
        & (tensors.free_completed_at > tensors.alloc_at)
    )
    if device.has_addresses:
        live &= tensors.group >= 0
    rows = np.flatnonzero(live)
    largest = rows[np.argsort(-tensors.block_bytes[rows], kind="stable")[:most]]
    largest = largest[np.lexsort((largest, tensors.alloc_at[largest]))]
    born = np.clip(tensors.alloc_at[largest], first, end)
    gone = np.clip(tensors.free_completed_at[largest], first, end)
    start = max(first, 0)
    curve = _active(device)[start:end]
    points = timeline.of_curve(curve, curve, _MOST_POINTS) + start
    at = np.unique(np.concatenate(([first], born, gone, points)))
    at = at[at < end].astype(np.int64)
    return Bands(
        first,
        end,
        step,
        largest,
        at,
        _rest(device, at, end, born, gone, tensors.block_bytes[largest]),
        len(rows) - len(largest),
    )


def _rest(device: DeviceTrace, at: Array, end: int, born: Array, gone: Array, size: Array) -> Array:
    """Returns the highest active bytes outside the bands, in each part ``[at[i], at[i + 1])``."""
    change = np.zeros(len(at) + 1, np.int64)
    np.add.at(change, np.searchsorted(at, born), size)
    np.add.at(change, np.searchsorted(at, gone), -size)
    in_bands = np.cumsum(change)[:-1]
    total = np.full(len(at), max(device.start.get("active", -1), device.start.get("allocated", -1)), np.int64)
    inside = np.flatnonzero(at >= 0)
    if len(inside):
        total[inside] = np.maximum.reduceat(_active(device)[:end], at[inside])
    return np.asarray(np.maximum(total - in_bands, 0))
