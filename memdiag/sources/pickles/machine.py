"""The pickle machine: one loop over the opcodes of plain data, compiled.

It runs twice. The dry run checks every opcode, argument and stack operation and counts what will be made; the second run writes
into arrays of exactly that size, so memory is bounded by the file and nothing is ever written out of range.

A value is an int64 with a tag in its low three bits:

    INT    the number itself, 61 bits                WIDE   a longer integer: row in strings (its bytes)
    STR    row in strings                            BYTES  row in strings
    BOX    row in boxes: list, dict, tuple, set      REAL   row in reals
    CONST  None, False, True                         NONE_THERE  no value
"""

from __future__ import annotations

from typing import Any

import numpy as np

from memdiag.trace.compiled import njit, njit_part
from memdiag.trace.table import Array

INT, STR, BOX, CONST, REAL, BYTES, WIDE, NONE_THERE = range(8)
C_NONE, C_FALSE, C_TRUE = range(3)
LIST, DICT, TUPLE, SET = range(4)
# How the bytes of a row in strings are to be read.
UTF8, RAW_ESCAPE, QUOTED, LITTLE_ENDIAN, DECIMAL, RAW_BYTES, FLOAT_TEXT = range(7)
# Outcome of a run.
OK, TRUNCATED, FORBIDDEN, UNKNOWN_OPCODE, UNDERFLOW, BAD_MEMO, WRONG_TYPE, MEMO_BOMB, BAD_NUMBER, TOO_DEEP = range(10)
# Positions in the vector of counts.
N_ITEMS, N_STACK, N_MEMO, N_BOXES, N_CHUNKS, N_STRINGS, N_REALS, N_COUNTS = range(8)

FORBIDDEN_OPCODES = {
    ord("c"): "GLOBAL", ord("R"): "REDUCE", ord("b"): "BUILD", ord("i"): "INST", ord("o"): "OBJ", ord("P"): "PERSID",
    ord("Q"): "BINPERSID", 0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}  # fmt: skip
_FORBIDDEN = np.zeros(256, np.bool_)
_FORBIDDEN[list(FORBIDDEN_OPCODES)] = True
_MOST_MARKS = 1 << 16  # open lists and dicts within each other: a snapshot has less than ten

# Opcodes with a counted argument: bytes of the count, kind of what follows (0 text, 1 bytes, 2 long integer).
_COUNTED = np.full((256, 2), -1, np.int8)
for _code, _width, _kind in (
    ("\x8c", 1, 0), ("X", 4, 0), ("\x8d", 8, 0), ("U", 1, 1), ("T", 4, 1), ("C", 1, 1), ("B", 4, 1), ("\x8e", 8, 1),
    ("\x96", 8, 1), ("\x8a", 1, 2), ("\x8b", 4, 2),
):  # fmt: skip
    _COUNTED[ord(_code)] = _width, _kind


@njit_part
def widened(values: Array, used: int, size: int) -> Array:
    """Returns an array of ``size`` that begins with the first ``used`` of ``values``; a slice takes three seconds longer to compile."""
    wider = np.empty(size, values.dtype)
    for i in range(used):
        wider[i] = values[i]
    return wider


@njit
def _unsigned(buf: Array, at: int, width: int) -> int:
    value = np.int64(0)
    for i in range(min(width, 8)):
        value |= np.int64(buf[at + i]) << np.int64(8 * i)
    return value


@njit
def _line_end(buf: Array, at: int) -> int:
    """Position of the newline at or after ``at``; -1: none."""
    for i in range(at, len(buf)):
        if buf[i] == 10:
            return i
    return -1


@njit
def _decimal(buf: Array, at: int, end: int) -> tuple[bool, int]:
    """Reads a short decimal number ("-12", "34L"); the flag says whether it is one that fits 18 digits."""
    if end > at and buf[end - 1] == 76:  # L
        end -= 1
    negative = end > at and buf[at] == 45
    if negative:
        at += 1
    if end <= at or end - at > 18:
        return False, 0
    value = np.int64(0)
    for i in range(at, end):
        if buf[i] < 48 or buf[i] > 57:
            return False, 0
        value = value * 10 + np.int64(buf[i] - 48)
    return True, -value if negative else value


@njit
def run(
    buf: Array, build: bool, stack: Array, memo: Array, items: Array, box_kind: Array, box_size: Array, box_first: Array,
    box_last: Array, chunk_start: Array, chunk_size: Array, chunk_next: Array, string_at: Array, string_size: Array,
    string_coding: Array, reals: Array,
) -> tuple[int, int, int, Array]:  # fmt: skip
    """Runs the pickle in ``buf`` (uint8); writes into the arrays only if ``build``.

    Returns:
        Outcome, position of the opcode it stopped at, root value, counts (N_COUNTS).
    """
    counts = np.zeros(N_COUNTS, np.int64)
    marks = np.zeros(64, np.int64)
    num_marks = 0
    top = 0  # height of the stack
    size = len(buf)
    pos = 0
    fresh = np.int64(0)  # the value that this opcode pushes
    while pos < size:
        op = buf[pos]
        at = pos + 1
        if _FORBIDDEN[op]:
            return FORBIDDEN, pos, 0, counts
        pushes = False
        if op == 0x68 or op == 0x6A or op == 0x67:  # BINGET LONG_BINGET GET
            if op == 0x67:
                end = _line_end(buf, at)
                if end < 0:
                    return TRUNCATED, pos, 0, counts
                good, index = _decimal(buf, at, end)
                if not good:
                    return BAD_NUMBER, pos, 0, counts
                at = end + 1
            else:
                width = 1 if op == 0x68 else 4
                if at + width > size:
                    return TRUNCATED, pos, 0, counts
                index = _unsigned(buf, at, width)
                at += width
            if index < 0 or index >= counts[N_MEMO]:
                return BAD_MEMO, pos, 0, counts
            if build:
                fresh = memo[index]
                if fresh & 7 == NONE_THERE:
                    return BAD_MEMO, pos, 0, counts
            pushes = True
        elif op == 0x4B or op == 0x4D or op == 0x4A:  # BININT1 BININT2 BININT
            width = 1 if op == 0x4B else 2 if op == 0x4D else 4
            if at + width > size:
                return TRUNCATED, pos, 0, counts
            number = _unsigned(buf, at, width)
            if op == 0x4A and number >= 1 << 31:
                number -= np.int64(1) << 32
            at += width
            fresh = number << 3 | INT
            pushes = True
        elif _COUNTED[op, 0] > 0:
            width = np.int64(_COUNTED[op, 0])
            if at + width > size:
                return TRUNCATED, pos, 0, counts
            length = _unsigned(buf, at, width)
            at += width
            if length < 0 or length > size - at:
                return TRUNCATED, pos, 0, counts
            kind = _COUNTED[op, 1]
            number = np.int64(0)
            short = kind == 2 and length <= 8
            if short:
                number = _unsigned(buf, at, length)
                if 0 < length < 8 and buf[at + length - 1] >= 128:
                    number -= np.int64(1) << np.int64(8 * length)
                short = -(np.int64(1) << 60) <= number < np.int64(1) << 60
            if short:
                fresh = number << 3 | INT
            else:
                row = counts[N_STRINGS]
                if build:
                    string_at[row], string_size[row] = at, length
                    string_coding[row] = UTF8 if kind == 0 else RAW_BYTES if kind == 1 else LITTLE_ENDIAN
                counts[N_STRINGS] += 1
                fresh = row << 3 | (STR if kind == 0 else BYTES if kind == 1 else WIDE)
            at += length
            pushes = True
        elif op == 0x28:  # MARK
            if num_marks == _MOST_MARKS:
                return TOO_DEEP, pos, 0, counts
            if num_marks == len(marks):
                marks = widened(marks, num_marks, 2 * num_marks)
            marks[num_marks] = top
            num_marks += 1
        elif op == 0x94 or op == 0x71 or op == 0x72 or op == 0x70:  # MEMOIZE BINPUT LONG_BINPUT PUT
            index = counts[N_MEMO]
            if op == 0x70:
                end = _line_end(buf, at)
                if end < 0:
                    return TRUNCATED, pos, 0, counts
                good, index = _decimal(buf, at, end)
                if not good or index < 0:
                    return BAD_NUMBER, pos, 0, counts
                at = end + 1
            elif op != 0x94:
                width = 1 if op == 0x71 else 4
                if at + width > size:
                    return TRUNCATED, pos, 0, counts
                index = _unsigned(buf, at, width)
                at += width
            if index >= size:
                return MEMO_BOMB, pos, 0, counts
            if top == 0 or (num_marks > 0 and marks[num_marks - 1] == top):
                return UNDERFLOW, pos, 0, counts
            if build:
                memo[index] = stack[top - 1]
            counts[N_MEMO] = max(counts[N_MEMO], index + 1)
        elif op == 0x7D or op == 0x5D or op == 0x29 or op == 0x8F:  # EMPTY_DICT EMPTY_LIST EMPTY_TUPLE EMPTY_SET
            row = counts[N_BOXES]
            if build:
                box_kind[row] = DICT if op == 0x7D else LIST if op == 0x5D else TUPLE if op == 0x29 else SET
            counts[N_BOXES] += 1
            fresh = row << 3 | BOX
            pushes = True
        elif (
            op == 0x75 or op == 0x65 or op == 0x90 or op == 0x73 or op == 0x61  # SETITEMS APPENDS ADDITEMS SETITEM APPEND
            or op == 0x74 or op == 0x6C or op == 0x64 or op == 0x91  # TUPLE LIST DICT FROZENSET
            or op == 0x85 or op == 0x86 or op == 0x87  # TUPLE1 TUPLE2 TUPLE3
        ):  # fmt: skip
            # What goes into the box stands on the stack from `first` on.
            if op == 0x73 or op == 0x61:
                first = top - (2 if op == 0x73 else 1)
            elif op == 0x85 or op == 0x86 or op == 0x87:
                first = top - (np.int64(op) - 0x84)
            else:
                if num_marks == 0:
                    return UNDERFLOW, pos, 0, counts
                num_marks -= 1
                first = marks[num_marks]
            makes = not (op == 0x75 or op == 0x65 or op == 0x90 or op == 0x73 or op == 0x61)
            floor = marks[num_marks - 1] if num_marks > 0 else 0
            if first < floor + (0 if makes else 1):
                return UNDERFLOW, pos, 0, counts
            taken = top - first
            kind = DICT if op == 0x75 or op == 0x73 or op == 0x64 else SET if op == 0x90 or op == 0x91 else LIST
            if makes and kind == LIST and op != 0x6C:
                kind = TUPLE
            if kind == DICT and taken & 1:
                return UNDERFLOW, pos, 0, counts
            if makes:
                box = counts[N_BOXES]
                counts[N_BOXES] += 1
                if build:
                    box_kind[box] = kind
                fresh = box << 3 | BOX
            elif build:
                owner = stack[first - 1]
                box = owner >> 3
                if owner & 7 != BOX or box_kind[box] != kind:
                    return WRONG_TYPE, pos, 0, counts
            else:
                box = np.int64(0)
            if taken > 0:
                if build:
                    start = counts[N_ITEMS]
                    items[start : start + taken] = stack[first:top]
                    last = box_last[box]
                    chunk = counts[N_CHUNKS]
                    chunk_start[chunk], chunk_size[chunk] = start, taken
                    if last < 0:
                        box_first[box] = chunk
                    else:
                        chunk_next[last] = chunk
                    box_last[box] = chunk
                    box_size[box] += taken
                counts[N_ITEMS] += taken
                counts[N_CHUNKS] += 1
            top = first
            pushes = makes
        elif op == 0x4E or op == 0x88 or op == 0x89:  # NONE NEWTRUE NEWFALSE
            fresh = np.int64(C_NONE if op == 0x4E else C_TRUE if op == 0x88 else C_FALSE) << 3 | CONST
            pushes = True
        elif op == 0x47:  # BINFLOAT
            if at + 8 > size:
                return TRUNCATED, pos, 0, counts
            row = counts[N_REALS]
            if build:
                reals[row] = at
            counts[N_REALS] += 1
            at += 8
            fresh = row << 3 | REAL
            pushes = True
        elif op == 0x95:  # FRAME
            if at + 8 > size:
                return TRUNCATED, pos, 0, counts
            length = _unsigned(buf, at, 8)
            at += 8
            if length < 0 or length > size - at:
                return TRUNCATED, pos, 0, counts
        elif op == 0x80:  # PROTO
            if at + 1 > size:
                return TRUNCATED, pos, 0, counts
            if buf[at] > 5:
                return UNKNOWN_OPCODE, pos, 0, counts
            at += 1
        elif op == 0x49 or op == 0x4C or op == 0x46 or op == 0x56 or op == 0x53:  # INT LONG FLOAT UNICODE STRING, as text
            end = _line_end(buf, at)
            if end < 0:
                return TRUNCATED, pos, 0, counts
            good, number = _decimal(buf, at, end)
            if op == 0x49 and end - at == 2 and buf[at] == 48 and good and number < 2:  # 00 and 01 are False and True
                fresh = np.int64(C_TRUE if number else C_FALSE) << 3 | CONST
            elif (op == 0x49 or op == 0x4C) and good:
                fresh = number << 3 | INT
            else:
                row = counts[N_STRINGS]
                if build:
                    string_at[row], string_size[row] = at, end - at
                    string_coding[row] = RAW_ESCAPE if op == 0x56 else QUOTED if op == 0x53 else FLOAT_TEXT if op == 0x46 else DECIMAL
                counts[N_STRINGS] += 1
                fresh = row << 3 | (STR if op == 0x56 or op == 0x53 else WIDE)
            at = end + 1
            pushes = True
        elif op == 0x30 or op == 0x31 or op == 0x32:  # POP POP_MARK DUP
            if op == 0x31 or (op == 0x30 and num_marks > 0 and marks[num_marks - 1] == top):
                if num_marks == 0:
                    return UNDERFLOW, pos, 0, counts
                num_marks -= 1
                top = marks[num_marks]
            elif top == 0 or (num_marks > 0 and marks[num_marks - 1] == top):
                return UNDERFLOW, pos, 0, counts
            elif op == 0x30:
                top -= 1
            else:
                if build:
                    fresh = stack[top - 1]
                pushes = True
        elif op == 0x2E:  # STOP
            if top != 1 or num_marks > 0:
                return UNDERFLOW, pos, 0, counts
            return OK, pos, stack[0] if build else 0, counts
        else:
            return UNKNOWN_OPCODE, pos, 0, counts
        if pushes:
            if build:
                stack[top] = fresh
            top += 1
            counts[N_STACK] = max(counts[N_STACK], top)
        pos = at
    return TRUNCATED, pos, 0, counts


def needed_bytes(counts: Array) -> int:
    """Returns the memory that a tape of these counts takes."""
    return sum(int(count) * size for count, size in zip(counts, (8, 8, 8, 13, 16, 17, 8), strict=True))


def allocate(counts: Array | None) -> tuple[Any, ...]:
    """Returns the arrays that ``run`` writes into, of the sizes that a dry run counted (None: for the dry run itself)."""
    n = np.zeros(N_COUNTS, np.int64) if counts is None else counts
    boxes, chunks, strings = n[N_BOXES], n[N_CHUNKS], n[N_STRINGS]
    return (
        np.empty(n[N_STACK], np.int64),
        np.full(n[N_MEMO], NONE_THERE, np.int64),
        np.empty(n[N_ITEMS], np.int64),
        np.empty(boxes, np.int8), np.zeros(boxes, np.int32), np.full(boxes, -1, np.int32), np.full(boxes, -1, np.int32),
        np.empty(chunks, np.int64), np.empty(chunks, np.int32), np.full(chunks, -1, np.int32),
        np.empty(strings, np.int64), np.empty(strings, np.int64), np.empty(strings, np.int8),
        np.empty(n[N_REALS], np.int64),
    )  # fmt: skip
