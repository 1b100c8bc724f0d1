"""The opcodes of a pickle, under their names in ``pickletools``, and tables that describe the effect of each.

The tables have a row for each byte, so that compiled code looks an opcode up in them.
"""

from __future__ import annotations

import numpy as np

from memdiag.sources.pickles import tags

MARK = 0x28
EMPTY_TUPLE = 0x29
STOP = 0x2E
POP = 0x30
POP_MARK = 0x31
DUP = 0x32
BINBYTES = 0x42
SHORT_BINBYTES = 0x43
FLOAT = 0x46
BINFLOAT = 0x47
INT = 0x49
BININT = 0x4A
BININT1 = 0x4B
LONG = 0x4C
BININT2 = 0x4D
NONE = 0x4E
STRING = 0x53
BINSTRING = 0x54
SHORT_BINSTRING = 0x55
UNICODE = 0x56
BINUNICODE = 0x58
EMPTY_LIST = 0x5D
APPEND = 0x61
DICT = 0x64
APPENDS = 0x65
GET = 0x67
BINGET = 0x68
LONG_BINGET = 0x6A
LIST = 0x6C
PUT = 0x70
BINPUT = 0x71
LONG_BINPUT = 0x72
SETITEM = 0x73
TUPLE = 0x74
SETITEMS = 0x75
EMPTY_DICT = 0x7D
PROTO = 0x80
TUPLE1 = 0x85
TUPLE2 = 0x86
TUPLE3 = 0x87
NEWTRUE = 0x88
NEWFALSE = 0x89
LONG1 = 0x8A
LONG4 = 0x8B
SHORT_BINUNICODE = 0x8C
BINUNICODE8 = 0x8D
BINBYTES8 = 0x8E
EMPTY_SET = 0x8F
ADDITEMS = 0x90
FROZENSET = 0x91
MEMOIZE = 0x94
FRAME = 0x95
BYTEARRAY8 = 0x96

FORBIDDEN_OPCODES = {
    0x63: "GLOBAL",
    0x52: "REDUCE",
    0x62: "BUILD",
    0x69: "INST",
    0x6F: "OBJ",
    0x50: "PERSID",
    0x51: "BINPERSID",
    0x81: "NEWOBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}
IS_FORBIDDEN = np.zeros(256, np.bool_)
IS_FORBIDDEN[list(FORBIDDEN_OPCODES)] = True

# Opcodes with a counted argument: bytes of the count (-1: no such opcode), and kind of the argument.
TEXT, BYTES, LONG_NUMBER = range(3)
COUNT_BYTES = np.full(256, -1, np.int8)
COUNTED_KIND = np.full(256, -1, np.int8)
for _opcode, _width, _kind in (
    (SHORT_BINUNICODE, 1, TEXT),
    (BINUNICODE, 4, TEXT),
    (BINUNICODE8, 8, TEXT),
    (SHORT_BINSTRING, 1, BYTES),
    (BINSTRING, 4, BYTES),
    (SHORT_BINBYTES, 1, BYTES),
    (BINBYTES, 4, BYTES),
    (BINBYTES8, 8, BYTES),
    (BYTEARRAY8, 8, BYTES),
    (LONG1, 1, LONG_NUMBER),
    (LONG4, 4, LONG_NUMBER),
):
    COUNT_BYTES[_opcode], COUNTED_KIND[_opcode] = _width, _kind

# Kind of the box that an opcode makes empty; -1: none.
EMPTY_BOX = np.full(256, -1, np.int8)
EMPTY_BOX[EMPTY_DICT] = tags.DICT
EMPTY_BOX[EMPTY_LIST] = tags.LIST
EMPTY_BOX[EMPTY_TUPLE] = tags.TUPLE
EMPTY_BOX[EMPTY_SET] = tags.SET

# Opcodes that put values from the stack into a container: its kind (-1: no such opcode), the number of values (0: those
# since the last mark), and whether the container is new or already on the stack below them.
FILLED_BOX = np.full(256, -1, np.int8)
NUM_VALUES = np.zeros(256, np.int8)
MAKES_BOX = np.zeros(256, np.bool_)
for _opcode, _kind, _count, _makes in (
    (SETITEM, tags.DICT, 2, False),
    (SETITEMS, tags.DICT, 0, False),
    (DICT, tags.DICT, 0, True),
    (APPEND, tags.LIST, 1, False),
    (APPENDS, tags.LIST, 0, False),
    (LIST, tags.LIST, 0, True),
    (ADDITEMS, tags.SET, 0, False),
    (FROZENSET, tags.SET, 0, True),
    (TUPLE, tags.TUPLE, 0, True),
    (TUPLE1, tags.TUPLE, 1, True),
    (TUPLE2, tags.TUPLE, 2, True),
    (TUPLE3, tags.TUPLE, 3, True),
):
    FILLED_BOX[_opcode], NUM_VALUES[_opcode], MAKES_BOX[_opcode] = _kind, _count, _makes
