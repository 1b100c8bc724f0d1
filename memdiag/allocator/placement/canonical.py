"""The search for a placement below a given height: depth first, from the bottom up, over canonical placements only.

Compiled.

Any placement can be pushed down until each buffer lies at 0 or on another; read by offset (equal ones by rank), it is
then a sequence in which each buffer lies on the highest of those before it that it shares a moment with. Only such
sequences are tried, after the manner of MiniMalloc (Moffitt, ASPLOS 2023), the lowest and then the highest ranked
buffer first. A branch is left where

* a buffer that is still to come could lie wholly below the next one: the same with it there is no worse, and is tried
  elsewhere;
* of two buffers alike in life and size, the one of higher rank is still to come: they could change places;
* in some section, what is still to come does not fit above the lowest place that any of it can have. A buffer that
  could have been placed
  lower than the last one was not: it must lie on one that is still to come. Where only one can be the lowest, all
  others lie on it;
* the same was tried before: the same buffers were to come, over the same outline, with no more freedom.

Where what is still to come falls into parts that share no moment, each is searched by itself: if one cannot be placed,
the others are not tried again.

Sections are looked at in two ways: parts are found in all of them, room is checked in the ``tracked`` ones, which in
large problems are the crowded ones only. Compiled code allocates nothing: its room to work in is made here.
"""

from __future__ import annotations

import numpy as np

from memdiag.allocator.placement.steps import FAR, scan, scramble, sort_parts
from memdiag.trace.compiled import njit
from memdiag.trace.table import Array

FOUND, IMPOSSIBLE, GAVE_UP = 1, 0, -1
# Rows of the tables below. Of what is to be placed by itself: where its rows begin and end, the offset and rank below
# which nothing goes, the level before it, what is to be done after it, its tracked sections.
BEGIN, END, LOWEST, LAST, PARENT, NEXT, SEEN_FROM, SEEN_TO = range(8)
# Of each decision: the same, the task, the lowest end, the buffer, how many tasks and changes there were, the outline.
TASK, FIRST_END, ROW, TASKS, TRAIL, KEY = range(4, 10)
LOW, SECOND, UNDER, LEFT = range(4)
PROPAGATE_UP_TO = 2_000  # buffers: a table of n² bytes
TURNS = 4
MOST_CHANGES = 1 << 22  # that can be taken back
MOST_KNOWN = 1 << 18  # outlines that are remembered


def look_for(
    first: Array,
    last: Array,
    size: Array,
    order: Array,
    tracked: tuple[Array, Array, Array],
    height: int,
    *,
    limit: int,
    split_every: int,
    stop: Array,
) -> tuple[int, Array, int]:
    """Looks for a placement that is no higher than ``height``.

    Args:
        first, last: Per buffer: sections that it lives in, first <= s < last (int64).
        size: Per buffer: units, above 0 (int64).
        order: All rows, the preferred first (int64).
        tracked: Per buffer first and last among the tracked sections, and the load of each of these.
        height: Units.
        limit: Steps, after which it gives up.
        split_every: Parts are looked for after so many buffers.
        stop: One value; other than 0: give up.

    Returns:
        FOUND, IMPOSSIBLE (there is none) or GAVE_UP; offsets, right only if found; and the steps it took.
    """
    n = len(size)
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    num_known = min(1 << max(4 * limit, 16).bit_length(), MOST_KNOWN)
    propagate = n <= PROPAGATE_UP_TO
    offsets, steps = np.zeros(n, np.int64), np.zeros(1, np.int64)
    by_section = np.zeros((4, len(tracked[2])), np.int64)
    by_section[LEFT] = tracked[2]
    with np.errstate(over="ignore"):  # names of outlines wrap around, where it is not compiled too
        ended = _search(
            first,
            last,
            size,
            rank,
            _twins(first, last, size, order),
            tracked[0],
            tracked[1],
            height,
            limit,
            split_every,
            TURNS if propagate else 1,
            np.arange(n),
            np.zeros((4, n), np.int64),
            by_section,
            np.zeros((2, int(last.max()) + 1), np.int64),
            np.zeros((8, 2 * n + 2), np.int64),
            np.zeros((10, n + 1), np.int64),
            np.zeros((2, min(n * n + 1, MOST_CHANGES)), np.int64),
            np.zeros((3, num_known), np.int64),
            np.zeros((n + 1, n) if propagate else (1, 1), np.int8),
            stop,
            steps,
            offsets,
        )
    return int(ended), offsets, int(steps[0])


def _twins(first: Array, last: Array, size: Array, order: Array) -> Array:
    """Returns, per buffer, the one before it in order that is alike in life and size; -1: none."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    alike = np.lexsort((place, size, last, first))
    same = (np.diff(first[alike]) == 0) & (np.diff(last[alike]) == 0) & (np.diff(size[alike]) == 0)
    twin = np.full(len(order), -1, np.int64)
    twin[alike[1:][same]] = alike[:-1][same]
    return twin


@njit
def _search(
    first: Array,
    last: Array,
    size: Array,
    rank: Array,
    twin: Array,
    seen_from: Array,
    seen_to: Array,
    height: int,
    limit: int,
    split_every: int,
    turns: int,
    rows: Array,
    per_row: Array,
    by_section: Array,
    parts: Array,
    tasks: Array,
    levels: Array,
    trails: Array,
    known: Array,
    fits: Array,
    stop: Array,
    steps: Array,
    offsets: Array,
) -> int:
    """See ``look_for``; the tables are for its use."""
    floor, bound, copy, placed = per_row[0], per_row[1], per_row[2], per_row[3]
    low, second, under, left = by_section[LOW], by_section[SECOND], by_section[UNDER], by_section[LEFT]
    part_of, ends = parts[0], parts[1]
    num_tracked, trail_size, num_known = len(left), trails.shape[1], known.shape[1]
    tasks[BEGIN, 0], tasks[END, 0], tasks[LOWEST, 0], tasks[LAST, 0] = 0, len(size), 0, -1
    tasks[PARENT, 0], tasks[NEXT, 0], tasks[SEEN_FROM, 0], tasks[SEEN_TO, 0] = -1, -1, 0, num_tracked
    num_tasks, trail = 1, 0
    level, task, begin, lowest, last_rank = 0, 0, 0, 0, -1
    first_end, tried_at, tried_rank = 0, -1, -1
    is_new = True
    while True:
        end = tasks[END, task]
        chosen = -1
        if is_new:
            if begin == end:
                task = tasks[NEXT, task]
                if task < 0:
                    return FOUND
                begin, lowest, last_rank = tasks[BEGIN, task], tasks[LOWEST, task], tasks[LAST, task]
                continue
            steps[0] += 1
            if steps[0] > limit or stop[0] != 0:
                return GAVE_UP
            first_end = scan(
                rows,
                begin,
                end,
                lowest,
                last_rank,
                height,
                turns,
                size,
                rank,
                floor,
                bound,
                seen_from,
                seen_to,
                tasks[SEEN_FROM, task],
                tasks[SEEN_TO, task],
                left,
                low,
                second,
                under,
            )
            if first_end >= 0 and level % split_every == 0:
                num_parts = sort_parts(rows, begin, end, first, last, part_of, ends, copy)
                if num_parts > 1:
                    after, at = tasks[NEXT, task], begin
                    for p in range(num_parts):
                        t = num_tasks + p
                        tasks[BEGIN, t], tasks[END, t], tasks[LOWEST, t], tasks[LAST, t] = (
                            at,
                            ends[p],
                            lowest,
                            last_rank,
                        )
                        tasks[PARENT, t], tasks[NEXT, t] = level - 1, t + 1
                        tasks[SEEN_FROM, t], tasks[SEEN_TO, t] = num_tracked, 0
                        for k in range(at, ends[p]):
                            i = rows[k]
                            if seen_to[i] > seen_from[i]:
                                tasks[SEEN_FROM, t] = min(tasks[SEEN_FROM, t], seen_from[i])
                                tasks[SEEN_TO, t] = max(tasks[SEEN_TO, t], seen_to[i])
                        at = ends[p]
                    tasks[NEXT, num_tasks + num_parts - 1] = after
                    task = num_tasks
                    num_tasks += num_parts
                    continue
            if first_end >= 0 and turns > 1:  # in large problems the same hardly comes again
                key = 0
                for k in range(begin, end):
                    key += scramble(floor[rows[k]] * 1_000_003 + rows[k])
                    fits[level, rows[k]] = bound[rows[k]] == floor[rows[k]]
                levels[KEY, level] = key
                q = key & (num_known - 1)
                if known[0, q] == key and (
                    known[1, q] < lowest or (known[1, q] == lowest and known[2, q] <= last_rank)
                ):
                    first_end = -1
            levels[TASK, level], levels[BEGIN, level], levels[FIRST_END, level] = task, begin, first_end
            levels[LOWEST, level], levels[LAST, level] = lowest, last_rank
            levels[TASKS, level], levels[TRAIL, level] = num_tasks, trail
            tried_at, tried_rank = -1, -1
        place = FAR
        for k in range(begin, end):
            i = rows[k]
            at = floor[i]
            if at > place or at >= first_end or at < lowest or at < tried_at:
                continue
            if (at == lowest and rank[i] <= last_rank) or (at == tried_at and rank[i] <= tried_rank):
                continue
            if (turns > 1 and fits[level, i] == 0) or (twin[i] >= 0 and placed[twin[i]] == 0):
                continue
            if at < place or rank[i] < rank[rows[chosen]]:
                chosen, place = k, at
        if chosen < 0:
            if first_end >= 0 and turns > 1:  # all was tried from here
                key = levels[KEY, level]
                q = key & (num_known - 1)
                if known[0, q] != key or known[1, q] > lowest or (known[1, q] == lowest and known[2, q] > last_rank):
                    known[0, q], known[1, q], known[2, q] = key, lowest, last_rank
            # back to the decision before; where a part began, to the one that all of its fellows follow from
            target = tasks[PARENT, task] if begin == tasks[BEGIN, task] else level - 1
            if target < 0:
                return IMPOSSIBLE
            if trail - levels[TRAIL, target] > trail_size:
                return GAVE_UP
            while level > target:
                level -= 1
                i = levels[ROW, level]
                placed[i] = 0
                for s in range(seen_from[i], seen_to[i]):
                    left[s] += size[i]
                while trail > levels[TRAIL, level]:
                    trail -= 1
                    floor[trails[0, trail % trail_size]] = trails[1, trail % trail_size]
            task, begin, first_end = levels[TASK, level], levels[BEGIN, level], levels[FIRST_END, level]
            lowest, last_rank, num_tasks = levels[LOWEST, level], levels[LAST, level], levels[TASKS, level]
            tried_at, tried_rank = offsets[levels[ROW, level]], rank[levels[ROW, level]]
            is_new = False
            continue
        i = rows[chosen]
        rows[chosen] = rows[begin]
        rows[begin] = i
        levels[ROW, level] = i
        offsets[i], placed[i] = place, 1
        top = place + size[i]
        begin += 1
        for k in range(begin, end):
            j = rows[k]
            if floor[j] < top and first[j] < last[i] and last[j] > first[i]:
                trails[0, trail % trail_size], trails[1, trail % trail_size] = j, floor[j]
                trail += 1
                floor[j] = top
        for s in range(seen_from[i], seen_to[i]):
            left[s] -= size[i]
        lowest, last_rank = place, rank[i]
        level += 1
        is_new = True
