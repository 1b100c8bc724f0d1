"""A plan in the form for the replay: every slot with its offsets, and one arena for each stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.allocator.placement.api import plan
from memdiag.allocator.placement.around import place_around
from memdiag.allocator.placement.firstfit import online
from memdiag.allocator.placement.model import SearchLimits
from memdiag.allocator.placement.sweeper import load_of
from memdiag.allocator.policies.static_plan.profile import GRAIN, Requests, Span, StepProfile, profile_of
from memdiag.allocator.policies.static_plan.slots import INIT, ROVES, SLOT, STEP
from memdiag.trace.table import Array

ROUNDS = 8  # rounds of search: enough for plans near the load, and reproducible
ENOUGH = 1.002  # times the load


@dataclass(frozen=True)
class Script:
    """A plan.

    Attributes:
        profile: The planned tensors.
        slots: Records of ``slots.SLOT``.
        begin: First slot of each script, and the end of the last one (NUM_SCRIPTS + 1 values).
        planned: Height of the planned slots of each stream, in bytes.
        heights: Bytes of the arena of each stream: the planned slots and the area for roving requests.
        loads: Peak of live bytes of each stream in the plan, plus that area.
    """

    profile: StepProfile
    slots: Array
    begin: Array
    planned: Array
    heights: Array
    loads: Array


def script_of(requests: Requests, spans: list[Span], num_calls: int, num_streams: int) -> Script:
    """Returns the plan of the step with the highest peak."""
    found = _script(requests, profile_of(requests, spans, num_calls), num_streams)
    if found.profile.turns > 1:
        other = _script(requests, profile_of(requests, spans, num_calls, roves=True), num_streams)
        if other.heights.sum() < found.heights.sum():
            return other
    return found


def _script(requests: Requests, profile: StepProfile, num_streams: int) -> Script:
    """Returns the plan of a profile, with the offsets found by the planner."""
    parts, roving = profile.scripts, profile.roving
    rows = [part.row for part in parts]
    for script, more in ((INIT, roving.early), (STEP, roving.row)):
        rows[script] = np.sort(np.concatenate((rows[script], more)))
    row = np.concatenate(rows)
    begin = np.append(0, np.cumsum([len(each) for each in rows])).astype(np.int64)
    # For each offset: its slot, its turn (0: the only one, or that of even steps) and its lifetime.
    tables = []
    for first, each, part in zip(begin.tolist(), rows, parts, strict=False):
        lower, upper = (np.atleast_2d(column) for column in (part.lower, part.upper))
        slot = np.broadcast_to(first + np.searchsorted(each, part.row), lower.shape)
        turn = np.broadcast_to(np.arange(len(lower))[:, None], lower.shape)
        tables.append(np.stack([column.ravel() for column in (slot, turn, lower, upper)]))
    slot, turn, lower, upper = np.concatenate(tables, axis=1).astype(np.int64)
    size, stream = requests.size[row], requests.stream[row]
    off = np.full((2, len(row)), -1, np.int64)
    for script, more in ((INIT, roving.early), (STEP, roving.row)):
        off[0, begin[script] + np.searchsorted(rows[script], more)] = ROVES
    planned, room, loads = (np.zeros(num_streams, np.int64) for _ in range(3))
    for number in np.unique(stream).tolist():
        mine = np.flatnonzero(stream[slot] == number)
        off[turn[mine], slot[mine]], planned[number], loads[number] = _places(
            size[slot[mine]], lower[mine], upper[mine], profile
        )
        own = np.flatnonzero(requests.stream[roving.row] == number)
        if len(own):
            three = np.tile(requests.size[roving.row[own]], 3)
            room[number] = online(roving.born[:, own].ravel(), roving.gone[:, own].ravel(), three, tightest=True)[1]
    slots = np.empty(len(row), SLOT)
    slots["size"], slots["site"], slots["arena"] = size, requests.site[row], stream
    slots["offset"], slots["second"], slots["used"] = off[0], off[1], -1
    slots["cycle"], slots["ordinal"] = _when(requests, profile, row)
    return Script(profile, slots, begin, planned, planned + room, loads + room)


def _when(requests: Requests, profile: StepProfile, row: Array) -> tuple[Array, Array]:
    """Returns the cycle of each request (0: initialisation), and its number in the cycle, from 1."""
    begins = np.array([span.begin for span in profile.spans], np.int64)
    cycle = np.searchsorted(begins, requests.call[row], side="right")
    first = np.append(0, np.searchsorted(requests.call, begins))
    return cycle, row - first[cycle] + 1


def _places(size: Array, lower: Array, upper: Array, profile: StepProfile) -> tuple[Array, int, int]:
    """Returns offsets, height and load. Lifetimes that end after the cycle continue from its beginning."""
    begin, end = profile.begin, profile.end
    crosses = np.flatnonzero(upper > end)
    whole_lower, whole_upper = lower.copy(), upper.copy()
    whole_lower[crosses], whole_upper[crosses] = begin, end
    rest = np.flatnonzero(upper <= end)
    again, until = begin + upper[crosses] - end, lower[crosses]
    load = load_of(
        np.concatenate((size, size[crosses])),
        np.concatenate((lower, np.full(len(crosses), begin))),
        np.concatenate((np.minimum(upper, end), np.minimum(again, until))),
    )
    made = plan(size, whole_lower, whole_upper, GRAIN, int(ENOUGH * load), SearchLimits(None, rounds=ROUNDS))
    if made.height_bytes <= ENOUGH * load or not len(crosses):
        return made.offsets, made.height_bytes, load
    # Lifetimes that cross the cut are at the bottom, stacked.
    stack = np.cumsum(size[crosses]) - size[crosses]
    pins = np.stack(
        (
            np.concatenate((stack, stack)),
            np.concatenate((size[crosses], size[crosses])),
            np.concatenate((np.full(len(crosses), begin), until)),
            np.concatenate((np.minimum(again, until), np.full(len(crosses), end))),
        )
    )
    offsets, height = place_around(size[rest], lower[rest], upper[rest], pins[:, pins[2] < pins[3]], GRAIN)
    if height >= made.height_bytes:
        return made.offsets, made.height_bytes, load
    found = np.empty(len(size), np.int64)
    found[rest], found[crosses] = offsets, stack
    return found, height, load
