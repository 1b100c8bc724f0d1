"""The pickle machine: one compiled loop over the opcodes of plain data.

It runs twice. The dry run checks every opcode, argument and stack operation, counts the values that will be created,
and notes which memo entries are ever read. The second run writes into arrays of that size, so the file bounds the
memory, and no write is out of range. Untouched pages of these arrays take no memory.

Both runs read the pickle piecewise: if a piece ends in the middle of an opcode, ``run`` stops before that opcode and
continues with the next piece.

Entries of a trace become rows instead of dicts: a dict without other references that has the keys of ``rows.Rows`` is
stored in columns.

A value is an int64 with a tag in its low three bits:

    INT    the number itself, 61 bits                WIDE   a longer integer: row in strings (its bytes)
    STR    row in strings                            BYTES  row in strings
    BOX    row in boxes: list, dict, tuple, set      REAL   row in reals
    CONST  None, False, True, a row (ROW_0 + its     NONE_THERE  no value
           number), or a dict whose items follow
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.sources.pickles import opcodes as op
from memdiag.sources.pickles.arguments import decimal, line_end, signed, unsigned
from memdiag.sources.pickles.rows import store_row
from memdiag.sources.pickles.store import (
    N_ARENA,
    N_BOXES,
    N_CHUNKS,
    N_ITEMS,
    N_MEMO,
    N_REALS,
    N_ROWS,
    N_STACK,
    N_STRINGS,
    Store,
    append,
    filled,
    keep_string,
    memo_slot,
    new_box,
    pair_box,
)
from memdiag.sources.pickles.tags import (
    BOX,
    BYTES,
    C_FALSE,
    C_NONE,
    C_TRUE,
    CONST,
    DECIMAL,
    DICT,
    FLOAT_TEXT,
    INT,
    LITTLE_ENDIAN,
    NONE_THERE,
    PENDING,
    QUOTED,
    RAW_BYTES,
    RAW_ESCAPE,
    REAL,
    ROW_0,
    STR,
    TUPLE,
    UTF8,
    WIDE,
)
from memdiag.trace.compiled import lean, lean_part
from memdiag.trace.table import Array

# Outcome of a run.
OK, TRUNCATED, FORBIDDEN, UNKNOWN_OPCODE, UNDERFLOW, BAD_MEMO, WRONG_TYPE, MEMO_BOMB, BAD_NUMBER, TOO_DEEP = range(10)
# Indices into the state: the next opcode in the window, the height of the stack, the number of open marks, the root.
POS, TOP, MARKS, ROOT, NUM_STATE = range(5)
_LEAST_PAIRS = 5  # in a trace entry: the dry run counts such dicts, since it does not know the keys
_LOOK_AHEAD = 6  # bytes: MEMOIZE or BINPUT, then MARK

MOST_MARKS = 1 << 16  # nested open lists and dicts: a snapshot has fewer than ten


@lean_part
def _begins_row(buf: Array, at: int, size: int, counts: Array, fetched: Array) -> bool:
    """Returns whether the empty dict created by the opcode ending at ``at`` is a candidate for a row.

    It must get its items next, and must not be referred to later.
    """
    if at >= size:
        return False
    if buf[at] == op.MEMOIZE:
        index, at = np.int64(counts[N_MEMO]), at + 1
    elif buf[at] == op.BINPUT or buf[at] == op.LONG_BINPUT:
        width = 1 if buf[at] == op.BINPUT else 4
        if at + 1 + width > size:
            return False
        index, at = np.int64(unsigned(buf, at + 1, width)), at + 1 + width
    else:
        index = np.int64(-1)  # protocols without a memo
    return at < size and buf[at] == op.MARK and (index < 0 or (index < len(fetched) and not fetched[index]))


class FileWindow(NamedTuple):
    """The part of the file that is in memory.

    Attributes:
        buf: Its bytes (uint8).
        size: Number of valid bytes in ``buf``.
        is_last: Whether no more bytes follow.
        before: Bytes of the file before ``buf``.
    """

    buf: Array
    size: int
    is_last: bool
    before: int


@lean(plain_seconds=1e-6)
def run(
    window: FileWindow, build: bool, state: Array, counts: Array, marks: Array, fetched: Array, store: Store
) -> int:
    """Executes the pickle up to the end of ``window``.

    Args:
        window: The bytes.
        build: Whether to write into ``store``; otherwise values are only counted.
        state: int64 (NUM_STATE): where to continue; the position is advanced to the first opcode that was not executed.
        counts: int64 (N_COUNTS): values created so far.
        marks: Height of the stack at each open mark.
        fetched: Whether each memo entry is ever read; written by the dry run.

    Returns:
        Outcome; TRUNCATED if more bytes are needed.
    """
    buf, size, is_last, before = window
    pos, top, num_marks = state[POS], state[TOP], state[MARKS]
    fresh = np.int64(0)  # the value that this opcode pushes
    stack, memo, memo_direct = store.stack, store.memo, store.memo_direct
    while True:  # in this form, Python 3.11 specialises the loop when it runs uncompiled
        if pos >= size:
            break
        state[POS], state[TOP], state[MARKS] = pos, top, num_marks
        opcode = buf[pos]
        at = pos + 1
        pushes = False
        if opcode == op.BINGET or opcode == op.LONG_BINGET or opcode == op.GET:
            if opcode == op.GET:
                end = line_end(buf, at)
                if end < 0:
                    return TRUNCATED
                good, index = decimal(buf, at, end)
                if not good:
                    return BAD_NUMBER
                at = end + 1
            else:
                width = 1 if opcode == op.BINGET else 4
                if at + width > size:
                    return TRUNCATED
                index = unsigned(buf, at, width)
                at += width
            if index < 0 or index >= counts[N_MEMO]:
                return BAD_MEMO
            if build:
                fresh = memo[index if index < memo_direct else memo_slot(index, fetched, store)] ^ NONE_THERE
                if fresh & 7 == NONE_THERE:
                    return BAD_MEMO
            else:
                fetched[index] = True
            pushes = True
        elif opcode == op.BININT1 or opcode == op.BININT2 or opcode == op.BININT:
            width = 1 if opcode == op.BININT1 else 2 if opcode == op.BININT2 else 4
            if at + width > size:
                return TRUNCATED
            number = unsigned(buf, at, width)
            if opcode == op.BININT and number >= 1 << 31:
                number -= np.int64(1) << 32
            at += width
            fresh = number << 3 | INT
            pushes = True
        elif op.COUNT_BYTES[opcode] > 0:
            width = np.int64(op.COUNT_BYTES[opcode])
            if at + width > size:
                return TRUNCATED
            length = unsigned(buf, at, width)
            at += width
            if length < 0 or length > size - at:
                return TRUNCATED
            kind = op.COUNTED_KIND[opcode]
            number = np.int64(0)
            short = kind == op.LONG_NUMBER and length <= 8
            if short:
                number = unsigned(buf, at, length)
                if 0 < length < 8 and buf[at + length - 1] >= 128:
                    number -= np.int64(1) << np.int64(8 * length)
                short = -(np.int64(1) << 60) <= number < np.int64(1) << 60
            if short:
                fresh = number << 3 | INT
            else:
                row = np.int64(0)
                if build:
                    row = keep_string(
                        buf,
                        at,
                        length,
                        UTF8 if kind == op.TEXT else RAW_BYTES if kind == op.BYTES else LITTLE_ENDIAN,
                        counts,
                        store,
                    )
                else:
                    counts[N_STRINGS] += 1
                    counts[N_ARENA] += length
                fresh = row << 3 | (STR if kind == op.TEXT else BYTES if kind == op.BYTES else WIDE)
            at += length
            pushes = True
        elif opcode == op.MARK:
            if num_marks == MOST_MARKS:
                return TOO_DEEP
            marks[num_marks] = top
            num_marks += 1
        elif opcode == op.MEMOIZE or opcode == op.BINPUT or opcode == op.LONG_BINPUT or opcode == op.PUT:
            index = counts[N_MEMO]
            if opcode == op.PUT:
                end = line_end(buf, at)
                if end < 0:
                    return TRUNCATED
                good, index = decimal(buf, at, end)
                if not good or index < 0:
                    return BAD_NUMBER
                at = end + 1
            elif opcode != op.MEMOIZE:
                width = 1 if opcode == op.BINPUT else 4
                if at + width > size:
                    return TRUNCATED
                index = unsigned(buf, at, width)
                at += width
            if index >= before + size:
                return MEMO_BOMB
            if top == 0 or (num_marks > 0 and marks[num_marks - 1] == top):
                return UNDERFLOW
            if build and fetched[index]:
                stack[top - 1] = filled(stack[top - 1], counts, store)
                store.memo[memo_slot(index, fetched, store)] = stack[top - 1] ^ NONE_THERE
            counts[N_MEMO] = max(counts[N_MEMO], index + 1)
        elif op.EMPTY_BOX[opcode] >= 0:
            if not is_last and at + _LOOK_AHEAD > size:
                return TRUNCATED
            if not build:
                counts[N_BOXES] += 1
            elif opcode == op.EMPTY_DICT and _begins_row(buf, at, size, counts, fetched):
                fresh = np.int64(PENDING)
            else:
                fresh = np.int64(new_box(np.int64(op.EMPTY_BOX[opcode]), counts, store) << 3 | BOX)
            pushes = True
        elif op.FILLED_BOX[opcode] >= 0:
            # The items of the new box are on the stack from `first` on.
            if op.NUM_VALUES[opcode] > 0:
                first = top - np.int64(op.NUM_VALUES[opcode])
            else:
                if num_marks == 0:
                    return UNDERFLOW
                num_marks -= 1
                first = marks[num_marks]
            makes = op.MAKES_BOX[opcode]
            floor = marks[num_marks - 1] if num_marks > 0 else 0
            if first < floor + (0 if makes else 1):
                return UNDERFLOW
            taken = top - first
            kind = np.int64(op.FILLED_BOX[opcode])
            if kind == DICT and taken & 1:
                return UNDERFLOW
            box = np.int64(0)
            if not build:
                counts[N_BOXES] += 1 if makes else 0
                counts[N_ROWS] += 1 if kind == DICT and taken >= 2 * _LEAST_PAIRS else 0
                counts[N_ITEMS] += taken
                counts[N_CHUNKS] += 1 if taken > 0 else 0
            elif kind == TUPLE and taken == 2:
                fresh = pair_box(stack[first], stack[first + 1], counts, store) << 3 | BOX
            else:
                if makes:
                    box = np.int64(new_box(kind, counts, store))
                    fresh = box << 3 | BOX
                else:
                    owner = stack[first - 1]
                    row = counts[N_ROWS]
                    if (
                        owner == PENDING
                        and kind == DICT
                        and taken >= 2 * _LEAST_PAIRS
                        and store_row(row, first, top, stack, store)
                    ):
                        counts[N_ROWS] += 1
                        stack[first - 1] = (np.int64(ROW_0) + row) << 3 | CONST
                        taken = np.int64(0)
                    else:
                        owner = np.int64(filled(owner, counts, store))
                        stack[first - 1] = owner
                        box = owner >> 3
                        if owner & 7 != BOX or store.box_kind[box] != kind:
                            return WRONG_TYPE
                if taken > 0:
                    append(box, first, taken, counts, store)
            top = first
            pushes = makes
        elif opcode == op.NONE or opcode == op.NEWTRUE or opcode == op.NEWFALSE:
            fresh = np.int64(C_NONE if opcode == op.NONE else C_TRUE if opcode == op.NEWTRUE else C_FALSE) << 3 | CONST
            pushes = True
        elif opcode == op.BINFLOAT:
            if at + 8 > size:
                return TRUNCATED
            row = counts[N_REALS]
            if build:
                bits = signed(buf[at])
                for i in range(1, 8):
                    bits = bits << 8 | np.int64(buf[at + i])
                store.reals[row] = bits
            counts[N_REALS] += 1
            at += 8
            fresh = row << 3 | REAL
            pushes = True
        elif opcode == op.FRAME:
            if at + 8 > size:
                return TRUNCATED
            length = unsigned(buf, at, 8)
            at += 8
            if length < 0 or length > size - at:
                return TRUNCATED
        elif opcode == op.PROTO:
            if at + 1 > size:
                return TRUNCATED
            if buf[at] > 5:
                return UNKNOWN_OPCODE
            at += 1
        elif opcode == op.INT or opcode == op.LONG or opcode == op.FLOAT or opcode == op.UNICODE or opcode == op.STRING:
            # opcodes whose argument is text
            end = line_end(buf, at)
            if end < 0:
                return TRUNCATED
            good, number = decimal(buf, at, end)
            # 00 and 01 are False and True
            if opcode == op.INT and end - at == 2 and buf[at] == 48 and good and number < 2:
                fresh = np.int64(C_TRUE if number else C_FALSE) << 3 | CONST
            elif (opcode == op.INT or opcode == op.LONG) and good:
                fresh = number << 3 | INT
            else:
                row = np.int64(0)
                if build:
                    coding = (
                        RAW_ESCAPE
                        if opcode == op.UNICODE
                        else QUOTED
                        if opcode == op.STRING
                        else FLOAT_TEXT
                        if opcode == op.FLOAT
                        else DECIMAL
                    )
                    row = keep_string(buf, at, end - at, coding, counts, store)
                else:
                    counts[N_STRINGS] += 1
                    counts[N_ARENA] += end - at
                fresh = row << 3 | (STR if opcode == op.UNICODE or opcode == op.STRING else WIDE)
            at = end + 1
            pushes = True
        elif opcode == op.POP or opcode == op.POP_MARK or opcode == op.DUP:
            if opcode == op.POP_MARK or (opcode == op.POP and num_marks > 0 and marks[num_marks - 1] == top):
                if num_marks == 0:
                    return UNDERFLOW
                num_marks -= 1
                top = marks[num_marks]
            elif top == 0 or (num_marks > 0 and marks[num_marks - 1] == top):
                return UNDERFLOW
            elif opcode == op.POP:
                top -= 1
            else:
                if build:
                    stack[top - 1] = filled(stack[top - 1], counts, store)
                    fresh = stack[top - 1]
                pushes = True
        elif opcode == op.STOP:
            if top != 1 or num_marks > 0:
                return UNDERFLOW
            if build:
                state[ROOT] = filled(stack[0], counts, store)
            state[POS] = at
            return OK
        else:
            return FORBIDDEN if op.IS_FORBIDDEN[opcode] else UNKNOWN_OPCODE
        if pushes:
            if build:
                stack[top] = fresh
            top += 1
            counts[N_STACK] = max(counts[N_STACK], top)
        pos = at
    state[POS], state[TOP], state[MARKS] = pos, top, num_marks
    return TRUNCATED
