"""The search for a placement below a given height: depth first, from the bottom up, over canonical placements only.

Compiled.

Any placement can be pushed down until each buffer is at 0 or directly on top of another one. Sorted by offset (ties in
the order of the preordering), it is then a sequence. In it, each buffer is on top of the highest earlier buffer with
which it shares a moment. Only such sequences are tried, as in MiniMalloc (Moffitt, ASPLOS 2023), the lowest offset
first and then the earliest in the preordering. The search abandons a branch in these cases:

* An unplaced buffer would fit entirely below the next one. The placement with it there is no worse and is tried
  elsewhere.
* The next buffer has the same lifetime and size as an unplaced buffer that is earlier in the preordering. Exchanging
  the two gives the same placement.
* In some section, the unplaced buffers do not fit above the lowest offset that any of them can have. A buffer that
  could have been placed lower than the last one was not placed there, so it must be on top of an unplaced one. If only
  one buffer can be the lowest, all others are on top of it.
* The same state was searched before: the same unplaced buffers over the same outline, with no more freedom.

If the unplaced buffers form partitions that share no section, each partition is searched separately. If one cannot be
placed, the others are not tried again.

Partitions are found in all sections. Room is checked only in the ``tracked`` sections, which in large problems are only
the crowded ones. Compiled code allocates no memory: its scratch memory is made here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.allocator.placement.inference import (
    FAR,
    Bounds,
    Buffers,
    PlacingFacts,
    TrackedSections,
    Unplaced,
    infer_offsets,
    scramble,
    sort_partitions,
)
from memdiag.allocator.placement.model import Lifespans
from memdiag.trace.compiled import njit
from memdiag.trace.table import Array

FOUND, IMPOSSIBLE, GAVE_UP = 1, 0, -1
PROPAGATE_UP_TO = 2_000  # number of buffers, because a table has n² bytes
ROUNDS = 4
MOST_CHANGES = 1 << 22  # of offsets that can be undone
MOST_KNOWN = 1 << 18  # number of stored outlines


class Tasks(NamedTuple):
    """Partitions that are placed separately.

    Attributes:
        first, last: The range of its buffers in ``PlacingFacts.buffer_idxs``.
        last_offset, last_preorder_idx: Offset and place in the preordering below which no buffer goes.
        parent: The decision before it; -1: none.
        next: The task after it; -1: none.
        tracked_lower, tracked_upper: Its tracked sections.
    """

    first: Array
    last: Array
    last_offset: Array
    last_preorder_idx: Array
    parent: Array
    next: Array
    tracked_lower: Array
    tracked_upper: Array


class Decisions(NamedTuple):
    """The decisions so far, by depth.

    Attributes:
        task: The task of the buffer.
        first, last_offset, last_preorder_idx: As of ``Tasks``, before the decision.
        min_height: The lowest height of any unplaced buffer if it is placed next.
        buffer: The buffer that was placed.
        num_tasks, num_changes: How many tasks and changes there were.
        key: The key of the outline.
    """

    task: Array
    first: Array
    last_offset: Array
    last_preorder_idx: Array
    min_height: Array
    buffer: Array
    num_tasks: Array
    num_changes: Array
    key: Array


class Changes(NamedTuple):
    """Changes of offsets that can be taken back: the buffer, and its lowest offset before."""

    buffer: Array
    min_offset: Array


class Outlines(NamedTuple):
    """Outlines from which everything was tried, by hash: the key, and where the last buffer was placed."""

    key: Array
    last_offset: Array
    last_preorder_idx: Array


class SearchTables(NamedTuple):
    """Scratch memory of a search.

    Attributes:
        placing, sections, tasks, decisions, changes, known: See their types.
        placed: By buffer, 1: it has its place.
        copied, partition_of, ends: By buffer, and twice by section, for ``sort_partitions``.
        unraised: By depth and buffer, 1: its inferred offset is its lowest one. One value if that is not used.
    """

    placing: PlacingFacts
    sections: TrackedSections
    tasks: Tasks
    decisions: Decisions
    changes: Changes
    known: Outlines
    placed: Array
    copied: Array
    partition_of: Array
    ends: Array
    unraised: Array

    @classmethod
    def of(cls, buffers: Buffers, total: Array, num_known: int, *, propagate: bool) -> SearchTables:
        """Returns tables for a search in which no buffer is placed."""
        num_buffers, num_sections = len(buffers.size), int(buffers.upper.max()) + 1
        num_changes = min(num_buffers * num_buffers + 1, MOST_CHANGES)

        def columns(kind: type, length: int) -> list[Array]:
            return list(np.zeros((len(kind._fields), length), np.int64))  # type: ignore[attr-defined]

        placing = PlacingFacts(*columns(PlacingFacts, num_buffers))
        return cls(
            placing=placing._replace(buffer_idxs=np.arange(num_buffers)),
            sections=TrackedSections(*columns(TrackedSections, len(total)))._replace(total=np.array(total, np.int64)),
            tasks=Tasks(*columns(Tasks, 2 * num_buffers + 2)),
            decisions=Decisions(*columns(Decisions, num_buffers + 1)),
            changes=Changes(*columns(Changes, num_changes)),
            known=Outlines(*columns(Outlines, num_known)),
            placed=np.zeros(num_buffers, np.int64),
            copied=np.zeros(num_buffers, np.int64),
            partition_of=np.zeros(num_sections, np.int64),
            ends=np.zeros(num_sections, np.int64),
            unraised=np.zeros((num_buffers + 1, num_buffers) if propagate else (1, 1), np.int8),
        )


def place_below(
    spans: Lifespans,
    preordering: Array,
    tracked: tuple[Array, Array, Array],
    height: int,
    *,
    limit: int,
    split_every: int,
    stop: Array,
) -> tuple[int, Array, int]:
    """Searches for a placement that is no higher than ``height``.

    Args:
        spans: The buffers; lifetimes are sections, and sizes are above 0.
        preordering: All buffers, the preferred first (int64).
        tracked: Per buffer, lower and upper among the tracked sections; and the total of each tracked section.
        height: Units.
        limit: Number of steps after which the search gives up.
        split_every: Number of placed buffers after which the search looks for partitions.
        stop: A flag; any value except 0 ends the search.

    Returns:
        FOUND, IMPOSSIBLE or GAVE_UP; the offsets, valid only if found; and the number of steps.
    """
    num_buffers = len(spans.size)
    preorder_idx = np.empty(num_buffers, np.int64)
    preorder_idx[preordering] = np.arange(num_buffers)
    num_known = min(1 << max(4 * limit, 16).bit_length(), MOST_KNOWN)
    propagate = num_buffers <= PROPAGATE_UP_TO
    buffers = Buffers(*spans, preorder_idx, _twins(spans, preordering), tracked[0], tracked[1])
    bounds = Bounds(height, limit, split_every, ROUNDS if propagate else 1, stop)
    tables = SearchTables.of(buffers, tracked[2], num_known, propagate=propagate)
    offsets, num_steps = np.zeros(num_buffers, np.int64), np.zeros(1, np.int64)
    with np.errstate(over="ignore"):  # keys of outlines wrap around, as in compiled code
        ended = _search(buffers, bounds, tables, offsets, num_steps)
    return int(ended), offsets, int(num_steps[0])


def _twins(spans: Lifespans, preordering: Array) -> Array:
    """Returns, for each buffer, the previous buffer in the preordering with equal lifetime and size; -1: none."""
    lower, upper, size = spans
    preorder_idx = np.empty(len(preordering), np.int64)
    preorder_idx[preordering] = np.arange(len(preordering))
    alike = np.lexsort((preorder_idx, size, upper, lower))
    same = (np.diff(lower[alike]) == 0) & (np.diff(upper[alike]) == 0) & (np.diff(size[alike]) == 0)
    twin = np.full(len(preordering), -1, np.int64)
    twin[alike[1:][same]] = alike[:-1][same]
    return twin


@njit
def _search(buffers: Buffers, bounds: Bounds, tables: SearchTables, offsets: Array, num_steps: Array) -> int:
    """Runs the search of ``place_below``; ``num_steps`` is one value."""
    lower, upper, size, preorder_idx, twin, tracked_lower, tracked_upper = buffers
    _, most_steps, split_every, rounds, stop = bounds
    placing, sections, tasks, decisions, changes, known, placed, copied, partition_of, ends, unraised = tables
    buffer_idxs, min_offset, inferred_offset = placing
    total = sections.total
    num_tracked, most_changes, num_known = len(total), len(changes.buffer), len(known.key)
    tasks.first[0], tasks.last[0], tasks.last_offset[0], tasks.last_preorder_idx[0] = 0, len(size), 0, -1
    tasks.parent[0], tasks.next[0], tasks.tracked_lower[0], tasks.tracked_upper[0] = -1, -1, 0, num_tracked
    num_tasks, num_changes = 1, 0
    depth, task, first, last_offset, last_preorder_idx = 0, 0, 0, 0, -1
    min_height, tried_offset, tried_preorder_idx = 0, -1, -1
    is_new = True
    while True:
        last = tasks.last[task]
        chosen = -1
        if is_new:
            if first == last:
                task = tasks.next[task]
                if task < 0:
                    return FOUND
                first, last_offset, last_preorder_idx = (
                    tasks.first[task],
                    tasks.last_offset[task],
                    tasks.last_preorder_idx[task],
                )
                continue
            num_steps[0] += 1
            if num_steps[0] > most_steps or stop[0] != 0:
                return GAVE_UP
            section_lower, section_upper = tasks.tracked_lower[task], tasks.tracked_upper[task]
            unplaced = Unplaced(first, last, last_offset, last_preorder_idx, section_lower, section_upper)
            min_height = infer_offsets(buffers, bounds, placing, sections, unplaced)
            if min_height >= 0 and depth % split_every == 0:
                num_partitions = sort_partitions(buffer_idxs, first, last, lower, upper, partition_of, ends, copied)
                if num_partitions > 1:
                    next_task, next_first = tasks.next[task], first
                    for partition in range(num_partitions):
                        new_task = num_tasks + partition
                        tasks.first[new_task], tasks.last[new_task] = next_first, ends[partition]
                        tasks.last_offset[new_task] = last_offset
                        tasks.last_preorder_idx[new_task] = last_preorder_idx
                        tasks.parent[new_task], tasks.next[new_task] = depth - 1, new_task + 1
                        tasks.tracked_lower[new_task], tasks.tracked_upper[new_task] = num_tracked, 0
                        for position in range(next_first, ends[partition]):
                            buffer = buffer_idxs[position]
                            if tracked_upper[buffer] > tracked_lower[buffer]:
                                tasks.tracked_lower[new_task] = min(
                                    tasks.tracked_lower[new_task], tracked_lower[buffer]
                                )
                                tasks.tracked_upper[new_task] = max(
                                    tasks.tracked_upper[new_task], tracked_upper[buffer]
                                )
                        next_first = ends[partition]
                    tasks.next[num_tasks + num_partitions - 1] = next_task
                    task = num_tasks
                    num_tasks += num_partitions
                    continue
            if min_height >= 0 and rounds > 1:  # in large problems, outlines rarely repeat
                key = 0
                for position in range(first, last):
                    buffer = buffer_idxs[position]
                    key += scramble(min_offset[buffer] * 1_000_003 + buffer)
                    unraised[depth, buffer] = inferred_offset[buffer] == min_offset[buffer]
                decisions.key[depth] = key
                slot = key & (num_known - 1)
                if known.key[slot] == key and (
                    known.last_offset[slot] < last_offset
                    or (known.last_offset[slot] == last_offset and known.last_preorder_idx[slot] <= last_preorder_idx)
                ):
                    min_height = -1
            decisions.task[depth], decisions.first[depth], decisions.min_height[depth] = task, first, min_height
            decisions.last_offset[depth], decisions.last_preorder_idx[depth] = last_offset, last_preorder_idx
            decisions.num_tasks[depth], decisions.num_changes[depth] = num_tasks, num_changes
            tried_offset, tried_preorder_idx = -1, -1
        chosen_offset = FAR
        for position in range(first, last):
            buffer = buffer_idxs[position]
            offset = min_offset[buffer]
            if offset > chosen_offset or offset >= min_height or offset < last_offset or offset < tried_offset:
                continue
            if (offset == last_offset and preorder_idx[buffer] <= last_preorder_idx) or (
                offset == tried_offset and preorder_idx[buffer] <= tried_preorder_idx
            ):
                continue
            if (rounds > 1 and unraised[depth, buffer] == 0) or (twin[buffer] >= 0 and placed[twin[buffer]] == 0):
                continue
            if offset < chosen_offset or preorder_idx[buffer] < preorder_idx[buffer_idxs[chosen]]:
                chosen, chosen_offset = position, offset
        if chosen < 0:
            if min_height >= 0 and rounds > 1:  # every continuation was tried
                key = decisions.key[depth]
                slot = key & (num_known - 1)
                if (
                    known.key[slot] != key
                    or known.last_offset[slot] > last_offset
                    or (known.last_offset[slot] == last_offset and known.last_preorder_idx[slot] > last_preorder_idx)
                ):
                    known.key[slot], known.last_offset[slot], known.last_preorder_idx[slot] = (
                        key,
                        last_offset,
                        last_preorder_idx,
                    )
            # back to the previous decision; from the start of a partition, to the decision before all its sibling
            # partitions
            target = tasks.parent[task] if first == tasks.first[task] else depth - 1
            if target < 0:
                return IMPOSSIBLE
            if num_changes - decisions.num_changes[target] > most_changes:
                return GAVE_UP
            while depth > target:
                depth -= 1
                buffer = decisions.buffer[depth]
                placed[buffer] = 0
                for section in range(tracked_lower[buffer], tracked_upper[buffer]):
                    total[section] += size[buffer]
                while num_changes > decisions.num_changes[depth]:
                    num_changes -= 1
                    min_offset[changes.buffer[num_changes % most_changes]] = changes.min_offset[
                        num_changes % most_changes
                    ]
            task, first, min_height = decisions.task[depth], decisions.first[depth], decisions.min_height[depth]
            last_offset, last_preorder_idx, num_tasks = (
                decisions.last_offset[depth],
                decisions.last_preorder_idx[depth],
                decisions.num_tasks[depth],
            )
            tried_offset, tried_preorder_idx = offsets[decisions.buffer[depth]], preorder_idx[decisions.buffer[depth]]
            is_new = False
            continue
        buffer = buffer_idxs[chosen]
        buffer_idxs[chosen] = buffer_idxs[first]
        buffer_idxs[first] = buffer
        decisions.buffer[depth] = buffer
        offsets[buffer], placed[buffer] = chosen_offset, 1
        chosen_height = chosen_offset + size[buffer]
        first += 1
        for position in range(first, last):
            other = buffer_idxs[position]
            if min_offset[other] < chosen_height and lower[other] < upper[buffer] and upper[other] > lower[buffer]:
                changes.buffer[num_changes % most_changes], changes.min_offset[num_changes % most_changes] = (
                    other,
                    min_offset[other],
                )
                num_changes += 1
                min_offset[other] = chosen_height
        for section in range(tracked_lower[buffer], tracked_upper[buffer]):
            total[section] -= size[buffer]
        last_offset, last_preorder_idx = chosen_offset, preorder_idx[buffer]
        depth += 1
        is_new = True
