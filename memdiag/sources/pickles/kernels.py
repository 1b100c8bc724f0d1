"""Compiled loops over a tape: convert many dicts into columns, and number equal texts and equal stacks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.sources.pickles.tags import BOX, INT, NONE_THERE, STR
from memdiag.trace.compiled import njit, njit_part
from memdiag.trace.table import Array

# FNV-1a, 32 bit: fast, and within 64 bits without overflow (plain Python would warn). Every hit is compared in full.
_FNV_START = np.int64(2166136261)
_FNV_PRIME = np.int64(16777619)
_FNV_BITS = np.int64(0xFFFFFFFF)


class Boxes(NamedTuple):
    """The items of all boxes; see ``Store``."""

    items: Array
    box_first: Array
    box_size: Array
    chunk_start: Array
    chunk_size: Array
    chunk_next: Array


@njit_part
def _widened(values: Array, used: int, size: int) -> Array:
    """Returns an array of ``size`` that begins with the first ``used`` of ``values``.

    A slice would add three seconds to numba's compilation.
    """
    wider = np.empty(size, values.dtype)
    for i in range(used):
        wider[i] = values[i]
    return wider


@njit(plain_seconds=1e-6)
def canonical_strings(buf: Array, string_at: Array, string_size: Array, string_coding: Array) -> Array:
    """Returns, int32 per string, the row of the first string with the same bytes and encoding."""
    n = len(string_at)
    canon = np.empty(n, np.int32)
    slots = 16
    while slots < 2 * n:
        slots *= 2
    table = np.full(slots, -1, np.int32)
    for row in range(n):
        start, size = string_at[row], string_size[row]
        code = _FNV_START
        for i in range(start, start + size):
            code = (code ^ np.int64(buf[i])) * _FNV_PRIME & _FNV_BITS
        slot = (code ^ code >> 15) & (slots - 1)
        while True:
            other = table[slot]
            if other < 0:
                table[slot] = row
                canon[row] = row
                break
            if string_size[other] == size and string_coding[other] == string_coding[row]:
                same = True
                base = string_at[other]
                for i in range(size):
                    if buf[base + i] != buf[start + i]:
                        same = False
                        break
                if same:
                    canon[row] = other
                    break
            slot = (slot + 1) & (slots - 1)
    return canon


@njit(plain_seconds=1e-6)
def total_items(boxes: Array, box_size: Array) -> int:
    """Returns the total number of items in the boxes."""
    total = np.int64(0)  # more than an int32 holds
    for box in boxes:
        total += box_size[box]
    return int(total)


@njit(plain_seconds=1e-6)
def flatten(boxes: Array, of_boxes: Boxes, total: int) -> Array:
    """Returns the items of all boxes, concatenated."""
    items, box_first, _, chunk_start, chunk_size, chunk_next = of_boxes
    flat = np.empty(total, np.int64)
    at = 0
    for box in boxes:
        chunk = box_first[box]
        while chunk >= 0:
            start, size = chunk_start[chunk], chunk_size[chunk]
            flat[at : at + size] = items[start : start + size]
            at += size
            chunk = chunk_next[chunk]
    return flat


@njit(plain_seconds=1e-6)
def fill_table(
    boxes: Array,
    column_of: Array,
    canonical: Array,
    of_boxes: Boxes,
    columns: Array,
    others: Array,
) -> bool:
    """Writes the values of many dicts into ``columns`` (keys x rows); marks keys without a column in ``others``."""
    items, box_first, _, chunk_start, chunk_size, chunk_next = of_boxes
    for row in range(len(boxes)):
        chunk = box_first[boxes[row]]
        while chunk >= 0:
            start = chunk_start[chunk]
            for i in range(start, start + chunk_size[chunk], 2):
                key = items[i]
                if key & 7 != STR:
                    return False
                name = canonical[key >> 3]
                column = column_of[name]
                if column >= 0:
                    columns[column, row] = items[i + 1]
                else:
                    others[name] = True
            chunk = chunk_next[chunk]
    return True


@njit(plain_seconds=1e-6)
def mark_items(boxes: Array, of_boxes: Boxes, seen: Array) -> bool:
    """Marks in ``seen`` (bool per box) every box that is an item of one of ``boxes``; False if an item is not a box."""
    items, box_first, _, chunk_start, chunk_size, chunk_next = of_boxes
    for box in boxes:
        chunk = box_first[box]
        while chunk >= 0:
            start = chunk_start[chunk]
            for i in range(start, start + chunk_size[chunk]):
                if items[i] & 7 != 2:
                    return False
                seen[items[i] >> 3] = True
            chunk = chunk_next[chunk]
    return True


@njit(plain_seconds=1e-6)
def intern_lists(
    boxes: Array,
    number_of: Array,
    items: Array,
    box_first: Array,
    box_size: Array,
    chunk_start: Array,
    chunk_size: Array,
    chunk_next: Array,
) -> tuple[Array, Array, Array]:
    """Numbers lists of frames; equal lists get the same number.

    Args:
        boxes: The lists.
        number_of: int32 per box: frame number of this box.

    Returns:
        Number of each list (int32), and offsets and frame numbers of the distinct lists, concatenated.
    """
    n = len(boxes)
    ids = np.empty(n, np.int32)
    slots = 16
    while slots < 2 * n:
        slots *= 2
    table = np.full(slots, -1, np.int32)
    offsets = np.zeros(n + 1, np.int64)
    flat = np.empty(1024, np.int32)
    known = 0
    used = 0
    for row in range(n):
        size = np.int64(box_size[boxes[row]])
        if used + size > len(flat):
            flat = _widened(flat, used, max(2 * len(flat), used + size))
        code = _FNV_START
        at = used
        chunk = box_first[boxes[row]]
        while chunk >= 0:
            start = chunk_start[chunk]
            for i in range(start, start + chunk_size[chunk]):
                number = number_of[items[i] >> 3]
                flat[at] = number
                at += 1
                code = (code ^ np.int64(number)) * _FNV_PRIME & _FNV_BITS
            chunk = chunk_next[chunk]
        slot = (code ^ code >> 15) & (slots - 1)
        while True:
            other = table[slot]
            if other < 0:
                table[slot] = known
                ids[row] = known
                known += 1
                used = at
                offsets[known] = used
                break
            base = offsets[other]
            if offsets[other + 1] - base == size:
                same = True
                for i in range(size):
                    if flat[base + i] != flat[used + i]:
                        same = False
                        break
                if same:
                    ids[row] = other
                    break
            slot = (slot + 1) & (slots - 1)
    return ids, offsets[: known + 1].copy(), flat[:used].copy()


@njit(plain_seconds=1e-6)
def fill_pairs(values: Array, of_boxes: Boxes) -> tuple[Array, bool]:
    """Reads tagged pairs of numbers as int64 (rows, 2), -1 where missing; False if one is not a pair of numbers."""
    items, box_first, box_size, chunk_start, chunk_size, chunk_next = of_boxes
    pairs = np.full((len(values), 2), -1, np.int64)
    for row in range(len(values)):
        if values[row] & 7 != BOX:
            continue
        box = values[row] >> 3
        if box_size[box] != 2:
            return pairs, False
        chunk = box_first[box]
        at = chunk_start[chunk]
        then = at + 1 if chunk_size[chunk] == 2 else chunk_start[chunk_next[chunk]]
        if items[at] & 7 != INT or items[then] & 7 != INT:
            return pairs, False
        pairs[row, 0], pairs[row, 1] = items[at] >> 3, items[then] >> 3
    return pairs, True


def integers(values: Array, missing: int) -> Array:
    """Returns tagged values as int64 numbers, with ``missing`` for absent ones.

    Raises:
        ValueError: A value is not an integer, or does not fit 61 bits.
    """
    tags = values & 7
    if not np.all((tags == INT) | (tags == NONE_THERE)):
        raise ValueError("a number is expected where something else stands")
    return np.where(tags == INT, values >> 3, missing)
