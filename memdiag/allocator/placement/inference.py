"""Infers from all unplaced buffers if there is room for them, and if they form independent partitions.

Compiled.
"""

from __future__ import annotations

from typing import NamedTuple

from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array

FAR = 1 << 62


class Buffers(NamedTuple):
    """The buffers to place, each an entry (int64).

    Attributes:
        lower, upper: The sections in which it is live, lower <= section < upper.
        size: Units, above 0.
        preorder_idx: Its place in the preordering.
        twin: The buffer before it in the preordering with equal lifetime and size; -1: none.
        tracked_lower, tracked_upper: Like ``lower`` and ``upper``, among the tracked sections.
    """

    lower: Array
    upper: Array
    size: Array
    preorder_idx: Array
    twin: Array
    tracked_lower: Array
    tracked_upper: Array


class Bounds(NamedTuple):
    """The limits of a search.

    Attributes:
        height: Units.
        most_steps: Steps after which it gives up.
        split_every: Partitions are looked for after so many buffers.
        rounds: How many times conclusions are drawn from earlier conclusions; 1: not at all.
        stop: One value; other than 0: give up.
    """

    height: int
    most_steps: int
    split_every: int
    rounds: int
    stop: Array


class PlacingFacts(NamedTuple):
    """Facts about each buffer.

    Attributes:
        buffer_idxs: All buffers; the unplaced ones of a task are a range of it.
        min_offset: The highest end of the placed buffers below it.
        inferred_offset: The lowest offset that it can still have.
    """

    buffer_idxs: Array
    min_offset: Array
    inferred_offset: Array


class TrackedSections(NamedTuple):
    """Facts about each tracked section.

    Attributes:
        total: Units of unplaced buffers.
        floor, second_floor: The two lowest inferred offsets in it.
        lowest_buffer: The buffer that must be below all others in it; -1: none must be.
    """

    total: Array
    floor: Array
    second_floor: Array
    lowest_buffer: Array


class Unplaced(NamedTuple):
    """The unplaced buffers of a partition.

    Attributes:
        first, last: Their range in ``PlacingFacts.buffer_idxs``.
        last_offset, last_preorder_idx: Where the last buffer was placed, and its place in the preordering.
        section_lower, section_upper: The tracked sections of the partition.
    """

    first: int
    last: int
    last_offset: int
    last_preorder_idx: int
    section_lower: int
    section_upper: int


@lean_part
def infer_offsets(
    buffers: Buffers, bounds: Bounds, placing: PlacingFacts, sections: TrackedSections, unplaced: Unplaced
) -> int:
    """Returns the lowest height of any unplaced buffer if it is placed next; -1: they do not fit below the height.

    Sets ``placing.inferred_offset``. All of ``sections`` except ``total`` is scratch memory.
    """
    size, preorder_idx = buffers.size, buffers.preorder_idx
    tracked_lower, tracked_upper = buffers.tracked_lower, buffers.tracked_upper
    buffer_idxs, min_offset, inferred_offset = placing
    total, floor, second_floor, lowest_buffer = sections
    first, last, last_offset, last_preorder_idx, section_lower, section_upper = unplaced
    height, rounds = bounds.height, bounds.rounds
    min_height, later_height = FAR, FAR
    for position in range(first, last):
        buffer = buffer_idxs[position]
        min_height = min(min_height, min_offset[buffer] + size[buffer])
        later_height = min(later_height, max(min_offset[buffer], last_offset) + size[buffer])
    if min_height <= last_offset:
        return -1
    for position in range(first, last):
        buffer = buffer_idxs[position]
        offset = min_offset[buffer]
        if offset < last_offset or (offset == last_offset and preorder_idx[buffer] < last_preorder_idx):
            offset = later_height  # a skipped buffer must be above a buffer that is still unplaced
        if offset + size[buffer] > height:
            return -1
        inferred_offset[buffer] = offset
    for round_number in range(rounds):
        for section in range(section_lower, section_upper):
            floor[section], second_floor[section], lowest_buffer[section] = FAR, FAR, -1
        for position in range(first, last):
            buffer = buffer_idxs[position]
            offset = inferred_offset[buffer]
            for section in range(tracked_lower[buffer], tracked_upper[buffer]):
                if offset < floor[section]:
                    floor[section], second_floor[section], lowest_buffer[section] = offset, floor[section], buffer
                elif offset < second_floor[section]:
                    second_floor[section] = offset
        concluded = False
        for section in range(section_lower, section_upper):
            if total[section] > 0:
                if floor[section] + total[section] > height:
                    return -1
                # only one of them can be the lowest: all others are above it
                if (
                    second_floor[section] < FAR
                    and second_floor[section] + total[section] > height
                    and second_floor[section] < floor[section] + size[lowest_buffer[section]]
                ):
                    concluded = True
                else:
                    lowest_buffer[section] = -1
        if not concluded or round_number == rounds - 1:
            break
        for position in range(first, last):
            buffer = buffer_idxs[position]
            offset = inferred_offset[buffer]
            for section in range(tracked_lower[buffer], tracked_upper[buffer]):
                if lowest_buffer[section] >= 0 and lowest_buffer[section] != buffer:
                    offset = max(offset, inferred_offset[lowest_buffer[section]] + size[lowest_buffer[section]])
            inferred_offset[buffer] = offset
            if offset + size[buffer] > height:
                return -1
    return min_height


@lean_part
def sort_partitions(
    buffer_idxs: Array,
    first: int,
    last: int,
    lower: Array,
    upper: Array,
    partition_of: Array,
    ends: Array,
    copied: Array,
) -> int:
    """Orders ``buffer_idxs[first:last]`` by partitions, which share no section.

    Returns how many there are; if more than one, ``ends`` has the end of each.
    """
    section_lower, section_upper = FAR, 0
    for position in range(first, last):
        buffer = buffer_idxs[position]
        section_lower, section_upper = min(section_lower, lower[buffer]), max(section_upper, upper[buffer])
    for section in range(section_lower, section_upper + 1):
        partition_of[section] = 0
    for position in range(first, last):
        buffer = buffer_idxs[position]
        partition_of[lower[buffer] + 1] += 1
        partition_of[upper[buffer]] -= 1
    num_live, last_partition = 0, 0
    for section in range(section_lower, section_upper):
        num_live += partition_of[section]
        if section > section_lower and num_live == 0:  # no buffer is live on both sides
            last_partition += 1
            ends[last_partition] = 0
        partition_of[section] = last_partition
    if last_partition == 0:
        return 1
    ends[0] = 0
    for position in range(first, last):
        copied[position] = buffer_idxs[position]
        ends[partition_of[lower[buffer_idxs[position]]]] += 1
    next_first = first
    for partition in range(last_partition + 1):
        num_buffers = ends[partition]
        ends[partition] = next_first
        next_first += num_buffers
    for position in range(first, last):
        buffer = copied[position]
        partition = partition_of[lower[buffer]]
        buffer_idxs[ends[partition]] = buffer
        ends[partition] += 1
    # sections in which no unplaced buffer is live are partitions without buffers
    num_partitions, next_first = 0, first
    for partition in range(last_partition + 1):
        if ends[partition] > next_first:
            next_first = ends[partition]
            ends[num_partitions] = next_first
            num_partitions += 1
    return num_partitions


@lean_part
def scramble(number: int) -> int:
    """Returns a 64-bit hash of a number."""
    number = (number ^ (number >> 31)) * -7046029254386353131
    number = (number ^ (number >> 27)) * -4658895280553007687
    return number ^ (number >> 33)
