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

import numpy as np

from memdiag.allocator.placement.inference import FAR, infer_offsets, scramble, sort_partitions
from memdiag.trace.compiled import njit
from memdiag.trace.table import Array

FOUND, IMPOSSIBLE, GAVE_UP = 1, 0, -1
# Rows of the tables below. A task is a partition that is placed separately. It has the range of its buffers in
# buffer_idxs, the minimum offset and preordering position of its buffers, the previous decision, the next task, and
# its tracked sections.
FIRST, LAST, LAST_OFFSET, LAST_PREORDER_IDX, PARENT, NEXT, TRACKED_LOWER, TRACKED_UPPER = range(8)
# Rows of a decision: the first four above, then its task, the lowest height, the buffer, the numbers of tasks and of
# changed offsets so far, and the key of the outline.
TASK, MIN_HEIGHT, BUFFER, TASKS, CHANGES, KEY = range(4, 10)
FLOOR, SECOND_FLOOR, LOWEST_BUFFER, TOTAL = range(4)
PROPAGATE_UP_TO = 2_000  # number of buffers, because a table has n² bytes
ROUNDS = 4
MOST_CHANGES = 1 << 22  # of offsets that can be undone
MOST_KNOWN = 1 << 18  # number of stored outlines


def place_below(
    lower: Array,
    upper: Array,
    size: Array,
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
        lower, upper: Per buffer, the sections in which it is live, lower <= section < upper (int64).
        size: Per buffer, units above 0 (int64).
        preordering: All buffers, the preferred first (int64).
        tracked: Per buffer, lower and upper among the tracked sections; and the total of each tracked section.
        height: Units.
        limit: Number of steps after which the search gives up.
        split_every: Number of placed buffers after which the search looks for partitions.
        stop: A flag; any value except 0 ends the search.

    Returns:
        FOUND, IMPOSSIBLE or GAVE_UP; the offsets, valid only if found; and the number of steps.
    """
    num_buffers = len(size)
    preorder_idx = np.empty(num_buffers, np.int64)
    preorder_idx[preordering] = np.arange(num_buffers)
    num_known = min(1 << max(4 * limit, 16).bit_length(), MOST_KNOWN)
    propagate = num_buffers <= PROPAGATE_UP_TO
    offsets, num_steps = np.zeros(num_buffers, np.int64), np.zeros(1, np.int64)
    by_section = np.zeros((4, len(tracked[2])), np.int64)
    by_section[TOTAL] = tracked[2]
    with np.errstate(over="ignore"):  # keys of outlines wrap around, as in compiled code
        ended = _search(
            lower,
            upper,
            size,
            preorder_idx,
            _twins(lower, upper, size, preordering),
            tracked[0],
            tracked[1],
            height,
            limit,
            split_every,
            ROUNDS if propagate else 1,
            np.arange(num_buffers),
            np.zeros((4, num_buffers), np.int64),
            by_section,
            np.zeros((2, int(upper.max()) + 1), np.int64),
            np.zeros((8, 2 * num_buffers + 2), np.int64),
            np.zeros((10, num_buffers + 1), np.int64),
            np.zeros((2, min(num_buffers * num_buffers + 1, MOST_CHANGES)), np.int64),
            np.zeros((3, num_known), np.int64),
            np.zeros((num_buffers + 1, num_buffers) if propagate else (1, 1), np.int8),
            stop,
            num_steps,
            offsets,
        )
    return int(ended), offsets, int(num_steps[0])


def _twins(lower: Array, upper: Array, size: Array, preordering: Array) -> Array:
    """Returns, per buffer, the previous buffer in the preordering with equal lifetime and size; -1: none."""
    preorder_idx = np.empty(len(preordering), np.int64)
    preorder_idx[preordering] = np.arange(len(preordering))
    alike = np.lexsort((preorder_idx, size, upper, lower))
    same = (np.diff(lower[alike]) == 0) & (np.diff(upper[alike]) == 0) & (np.diff(size[alike]) == 0)
    twin = np.full(len(preordering), -1, np.int64)
    twin[alike[1:][same]] = alike[:-1][same]
    return twin


@njit
def _search(
    lower: Array,
    upper: Array,
    size: Array,
    preorder_idx: Array,
    twin: Array,
    tracked_lower: Array,
    tracked_upper: Array,
    height: int,
    most_steps: int,
    split_every: int,
    rounds: int,
    buffer_idxs: Array,
    by_buffer: Array,
    by_section: Array,
    by_time: Array,
    tasks: Array,
    decisions: Array,
    changes: Array,
    known: Array,
    unraised: Array,
    stop: Array,
    num_steps: Array,
    offsets: Array,
) -> int:
    """Runs the search of ``place_below``; the tables are its scratch memory."""
    min_offset, inferred_offset, copied, placed = by_buffer[0], by_buffer[1], by_buffer[2], by_buffer[3]
    floor, second_floor, lowest_buffer, total = (
        by_section[FLOOR],
        by_section[SECOND_FLOOR],
        by_section[LOWEST_BUFFER],
        by_section[TOTAL],
    )
    partition_of, ends = by_time[0], by_time[1]
    num_tracked, most_changes, num_known = len(total), changes.shape[1], known.shape[1]
    tasks[FIRST, 0], tasks[LAST, 0], tasks[LAST_OFFSET, 0], tasks[LAST_PREORDER_IDX, 0] = 0, len(size), 0, -1
    tasks[PARENT, 0], tasks[NEXT, 0], tasks[TRACKED_LOWER, 0], tasks[TRACKED_UPPER, 0] = -1, -1, 0, num_tracked
    num_tasks, num_changes = 1, 0
    depth, task, first, last_offset, last_preorder_idx = 0, 0, 0, 0, -1
    min_height, tried_offset, tried_preorder_idx = 0, -1, -1
    is_new = True
    while True:
        last = tasks[LAST, task]
        chosen = -1
        if is_new:
            if first == last:
                task = tasks[NEXT, task]
                if task < 0:
                    return FOUND
                first, last_offset, last_preorder_idx = (
                    tasks[FIRST, task],
                    tasks[LAST_OFFSET, task],
                    tasks[LAST_PREORDER_IDX, task],
                )
                continue
            num_steps[0] += 1
            if num_steps[0] > most_steps or stop[0] != 0:
                return GAVE_UP
            min_height = infer_offsets(
                buffer_idxs,
                first,
                last,
                last_offset,
                last_preorder_idx,
                height,
                rounds,
                size,
                preorder_idx,
                min_offset,
                inferred_offset,
                tracked_lower,
                tracked_upper,
                tasks[TRACKED_LOWER, task],
                tasks[TRACKED_UPPER, task],
                total,
                floor,
                second_floor,
                lowest_buffer,
            )
            if min_height >= 0 and depth % split_every == 0:
                num_partitions = sort_partitions(buffer_idxs, first, last, lower, upper, partition_of, ends, copied)
                if num_partitions > 1:
                    next_task, next_first = tasks[NEXT, task], first
                    for partition in range(num_partitions):
                        new_task = num_tasks + partition
                        tasks[FIRST, new_task], tasks[LAST, new_task] = next_first, ends[partition]
                        tasks[LAST_OFFSET, new_task] = last_offset
                        tasks[LAST_PREORDER_IDX, new_task] = last_preorder_idx
                        tasks[PARENT, new_task], tasks[NEXT, new_task] = depth - 1, new_task + 1
                        tasks[TRACKED_LOWER, new_task], tasks[TRACKED_UPPER, new_task] = num_tracked, 0
                        for position in range(next_first, ends[partition]):
                            buffer = buffer_idxs[position]
                            if tracked_upper[buffer] > tracked_lower[buffer]:
                                tasks[TRACKED_LOWER, new_task] = min(
                                    tasks[TRACKED_LOWER, new_task], tracked_lower[buffer]
                                )
                                tasks[TRACKED_UPPER, new_task] = max(
                                    tasks[TRACKED_UPPER, new_task], tracked_upper[buffer]
                                )
                        next_first = ends[partition]
                    tasks[NEXT, num_tasks + num_partitions - 1] = next_task
                    task = num_tasks
                    num_tasks += num_partitions
                    continue
            if min_height >= 0 and rounds > 1:  # in large problems, outlines rarely repeat
                key = 0
                for position in range(first, last):
                    buffer = buffer_idxs[position]
                    key += scramble(min_offset[buffer] * 1_000_003 + buffer)
                    unraised[depth, buffer] = inferred_offset[buffer] == min_offset[buffer]
                decisions[KEY, depth] = key
                slot = key & (num_known - 1)
                if known[0, slot] == key and (
                    known[1, slot] < last_offset
                    or (known[1, slot] == last_offset and known[2, slot] <= last_preorder_idx)
                ):
                    min_height = -1
            decisions[TASK, depth], decisions[FIRST, depth], decisions[MIN_HEIGHT, depth] = task, first, min_height
            decisions[LAST_OFFSET, depth], decisions[LAST_PREORDER_IDX, depth] = last_offset, last_preorder_idx
            decisions[TASKS, depth], decisions[CHANGES, depth] = num_tasks, num_changes
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
                key = decisions[KEY, depth]
                slot = key & (num_known - 1)
                if (
                    known[0, slot] != key
                    or known[1, slot] > last_offset
                    or (known[1, slot] == last_offset and known[2, slot] > last_preorder_idx)
                ):
                    known[0, slot], known[1, slot], known[2, slot] = key, last_offset, last_preorder_idx
            # back to the previous decision; from the start of a partition, to the decision before all its sibling
            # partitions
            target = tasks[PARENT, task] if first == tasks[FIRST, task] else depth - 1
            if target < 0:
                return IMPOSSIBLE
            if num_changes - decisions[CHANGES, target] > most_changes:
                return GAVE_UP
            while depth > target:
                depth -= 1
                buffer = decisions[BUFFER, depth]
                placed[buffer] = 0
                for section in range(tracked_lower[buffer], tracked_upper[buffer]):
                    total[section] += size[buffer]
                while num_changes > decisions[CHANGES, depth]:
                    num_changes -= 1
                    min_offset[changes[0, num_changes % most_changes]] = changes[1, num_changes % most_changes]
            task, first, min_height = decisions[TASK, depth], decisions[FIRST, depth], decisions[MIN_HEIGHT, depth]
            last_offset, last_preorder_idx, num_tasks = (
                decisions[LAST_OFFSET, depth],
                decisions[LAST_PREORDER_IDX, depth],
                decisions[TASKS, depth],
            )
            tried_offset, tried_preorder_idx = offsets[decisions[BUFFER, depth]], preorder_idx[decisions[BUFFER, depth]]
            is_new = False
            continue
        buffer = buffer_idxs[chosen]
        buffer_idxs[chosen] = buffer_idxs[first]
        buffer_idxs[first] = buffer
        decisions[BUFFER, depth] = buffer
        offsets[buffer], placed[buffer] = chosen_offset, 1
        chosen_height = chosen_offset + size[buffer]
        first += 1
        for position in range(first, last):
            other = buffer_idxs[position]
            if min_offset[other] < chosen_height and lower[other] < upper[buffer] and upper[other] > lower[buffer]:
                changes[0, num_changes % most_changes], changes[1, num_changes % most_changes] = (
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
