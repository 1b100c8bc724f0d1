"""The steps of the search that look at everything still to come: is there room for it, and does it fall into parts.

Compiled.
"""

from __future__ import annotations

from memdiag.trace.compiled import njit_part
from memdiag.trace.table import Array

FAR = 1 << 62


@njit_part
def scan(
    rows: Array,
    begin: int,
    end: int,
    lowest: int,
    last_rank: int,
    height: int,
    turns: int,
    size: Array,
    rank: Array,
    floor: Array,
    bound: Array,
    seen_from: Array,
    seen_to: Array,
    room_from: int,
    room_to: int,
    left: Array,
    low: Array,
    second: Array,
    under: Array,
) -> int:
    """Returns the lowest end that one of the rows to come can have now; -1: they do not fit below ``height``.

    Args:
        rows, begin, end: What is to come.
        lowest, last_rank: Where the last one was placed, and which it was.
        height: Units.
        turns: How often conclusions are drawn from conclusions; 1: none are.
        size, rank, floor: Per row; floor: the highest end of what it would lie on now.
        bound: Result: the lowest offset that each row can still have.
        seen_from, seen_to: Per row: tracked sections.
        room_from, room_to: Those of all of them.
        left: Per tracked section: units to come.
        low, second, under: Per tracked section, for use here: the two lowest bounds in it, and the row of the lowest if it must lie below
            all others there.
    """
    first_end, later_end = FAR, FAR
    for k in range(begin, end):
        i = rows[k]
        first_end = min(first_end, floor[i] + size[i])
        later_end = min(later_end, max(floor[i], lowest) + size[i])
    if first_end <= lowest:
        return -1
    for k in range(begin, end):
        i = rows[k]
        at = floor[i]
        if at < lowest or (at == lowest and rank[i] < last_rank):
            at = later_end  # passed over: it lies on something that is still to come
        if at + size[i] > height:
            return -1
        bound[i] = at
    for turn in range(turns):
        for s in range(room_from, room_to):
            low[s], second[s], under[s] = FAR, FAR, -1
        for k in range(begin, end):
            i = rows[k]
            at = bound[i]
            for s in range(seen_from[i], seen_to[i]):
                if at < low[s]:
                    low[s], second[s], under[s] = at, low[s], i
                elif at < second[s]:
                    second[s] = at
        concluded = False
        for s in range(room_from, room_to):
            if left[s] > 0:
                if low[s] + left[s] > height:
                    return -1
                # none but one of them can be the lowest: then all others lie above it
                if second[s] < FAR and second[s] + left[s] > height and second[s] < low[s] + size[under[s]]:
                    concluded = True
                else:
                    under[s] = -1
        if not concluded or turn == turns - 1:
            break
        for k in range(begin, end):
            i = rows[k]
            at = bound[i]
            for s in range(seen_from[i], seen_to[i]):
                if under[s] >= 0 and under[s] != i:
                    at = max(at, bound[under[s]] + size[under[s]])
            bound[i] = at
            if at + size[i] > height:
                return -1
    return first_end


@njit_part
def sort_parts(
    rows: Array, begin: int, end: int, first: Array, last: Array, part_of: Array, ends: Array, copy: Array
) -> int:
    """Orders rows[begin:end] by the parts that share no moment; returns how many there are, their ends in ``ends`` if more than one."""
    low, high = FAR, 0
    for k in range(begin, end):
        low, high = min(low, first[rows[k]]), max(high, last[rows[k]])
    for s in range(low, high + 1):
        part_of[s] = 0
    for k in range(begin, end):
        i = rows[k]
        part_of[first[i] + 1] += 1
        part_of[last[i]] -= 1
    live, part = 0, 0
    for s in range(low, high):
        live += part_of[s]
        if s > low and live == 0:  # nothing is live on both sides
            part += 1
            ends[part] = 0
        part_of[s] = part
    if part == 0:
        return 1
    ends[0] = 0
    for k in range(begin, end):
        copy[k] = rows[k]
        ends[part_of[first[rows[k]]]] += 1
    at = begin
    for p in range(part + 1):
        num = ends[p]
        ends[p] = at
        at += num
    for k in range(begin, end):
        i = copy[k]
        p = part_of[first[i]]
        rows[ends[p]] = i
        ends[p] += 1
    # sections in which nothing is left are parts without members
    num_parts, at = 0, begin
    for p in range(part + 1):
        if ends[p] > at:
            at = ends[p]
            ends[num_parts] = at
            num_parts += 1
    return num_parts


@njit_part
def scramble(number: int) -> int:
    """Returns 64 bits that look like chance, always the same for the same number."""
    number = (number ^ (number >> 31)) * -7046029254386353131
    number = (number ^ (number >> 27)) * -4658895280553007687
    return number ^ (number >> 33)
