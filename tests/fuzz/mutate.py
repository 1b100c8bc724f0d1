"""Mutations of bytes, and of trees of plain objects (see ``forms``).

All random choices come from the given generator, so runs can be repeated.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from tests.fuzz.forms import bytes_of, tree_of

_NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    255,
    256,
    511,
    512,
    513,
    1023,
    1 << 20,
    (1 << 20) + 512,
    2 << 20,
    20 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 40,
    1 << 50,
    (1 << 50) + 1,
    1 << 59,
    1 << 60,
    (1 << 60) - 1,
    -(1 << 60),
    (1 << 61),
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63),
    1 << 64,
    10**30,
)
_OTHERS = (
    None,
    True,
    False,
    0.0,
    -1.5,
    1e300,
    float("inf"),
    float("nan"),
    "",
    "0",
    "-1",
    "alloc",
    "free_completed",
    "segment_map",
    "oom",
    "inactive",
    "active_allocated",
    "\x00",
    "\ud800",
    "é" * 300,
    "N/A",
    "nan",
    "1e999",
    b"",
    b"\xff",
    (),
    [],
    {},
    {"address": 1},
    (0, 0),
    [[]],
    [{}],
    "0x10",
    "[0]",
    "9" * 400,
    "a,b\nc",
)
_MAGICS = (
    b"\x80\x04",
    b"\x95",
    b"}",
    b"]",
    b"(",
    b"u",
    b"e",
    b"a",
    b"s",
    b".",
    b"0",
    b"1",
    b"2",
    b"\x94",
    b"h\x00",
    b"r\xff\xff\xff\x00",
    b"N",
    b"K\x01",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x07",
    b"\x8b\x00\x00\x00\x00",
    b"\x8c\x04addr",
    b"\x85",
    b"\x86",
    b"\x87",
    b"t",
    b"l",
    b"d",
    b"I01\n",
    b"L5L\n",
    b"F1.5\n",
    b"V\\u0041\n",
    b"S'x'\n",
    b"cos\nsystem\n",
    b"R",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b'"',
    b"[",
    b"{",
    b",",
    b"\n",
    b"-",
    b"1e9",
    b"\\u",
    b"null",
    b"PK\x05\x06",
    b"\x1f\x8b",
    b"\x00",
    b"\xf0\x9f",
)


def mutated(source: str, data: bytes, seeds: Sequence[bytes], chance: random.Random, largest: int = 1 << 20) -> bytes:
    """Returns a mutation of ``data``, usually of its tree; parts may come from ``seeds``, other inputs of the same
    source.
    """
    if chance.random() < 0.75:
        tree = tree_of(source, data)
        if tree is not None:
            for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5, 9))):
                tree = _tree_step(tree, chance)
            made = bytes_of(source, tree, chance)
            if made is not None and len(made) <= largest:
                data = made
                if chance.random() < 0.85:
                    return data
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        data = _bytes_step(data, seeds, chance)
    return data[:largest]


def _bytes_step(data: bytes, seeds: Sequence[bytes], chance: random.Random) -> bytes:
    kind = chance.randrange(9)
    at = chance.randrange(len(data) + 1)
    length = min(chance.choice((1, 1, 2, 4, 8, 30, 200)), len(data) - at)
    if kind == 0 and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if kind == 1:
        return data[:at] + chance.randbytes(length) + data[at + length :]
    if kind == 2:
        return data[:at] + data[at + length :]
    if kind == 3:
        return data[:at] + chance.choice(_MAGICS) + data[at:]
    if kind == 4:
        magic = chance.choice(_MAGICS)
        return data[:at] + magic + data[at + len(magic) :]
    if kind == 5:
        return data[:at] + data[at : at + length] * chance.choice((2, 3, 50)) + data[at + length :]
    if kind == 6:
        return data[:at]
    if kind == 7:
        other = chance.choice(seeds) if seeds else data
        start = chance.randrange(len(other) + 1)
        return data[:at] + other[start : start + chance.choice((8, 64, 512, 4096))] + data[at:]
    start = chance.randrange(len(data) + 1)
    return data[:at] + data[start : start + length] + data[at + length :]


def _places(tree: Any, most: int = 20_000) -> list[tuple[Any, Any]]:
    """Returns (container, key) of every value in a tree, each container once."""
    places: list[tuple[Any, Any]] = []
    seen: set[int] = set()
    left = [tree]
    while left and len(places) < most:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in pairs:
            places.append((node, key))
            if isinstance(value, (dict, list)):
                left.append(value)
    return places


Places = list[tuple[Any, Any]]


def _of_the_same_name(key: Any, places: Places) -> list[Any]:
    return [node[name] for node, name in places if name == key]


def _near_number(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    """Returns another number: one stored elsewhere under the same name, or one close to it.

    Numbers get their meaning by equality with others (an address, a stream), so such numbers reach more code.
    """
    value = node[key]
    if isinstance(value, bool) or not isinstance(value, int):
        return
    same = [number for number in _of_the_same_name(key, places) if isinstance(number, int)]
    base = chance.choice(same) if chance.random() < 0.6 else value
    node[key] = base + chance.choice((0, 0, 0, 1, -1, 512, -512, 1024, 2 << 20, -(2 << 20), 20 << 20, base, -2 * base))


def _share(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    """Puts the same object in two places, which a pickle stores once."""
    node[key] = chance.choice(_of_the_same_name(key, places))


def _number(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    del places
    node[key] = chance.choice(_NUMBERS)


def _other(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    del places
    node[key] = copy.copy(chance.choice(_OTHERS))


def _delete(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    del places, chance
    del node[key]


def _swap(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    """Exchanges two items, or gives a dict a new key."""
    del places
    if isinstance(node, list):
        other = chance.randrange(len(node))
        node[key], node[other] = node[other], node[key]
    else:
        node[chance.choice(("unknown", "address", "addr", "size", "blocks", 5, ""))] = node[key]


def _again(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    """Repeats an item, or copies a value of a dict to another of its keys."""
    del places
    if isinstance(node, list):
        node.insert(chance.randrange(len(node) + 1), node[key] if chance.random() < 0.5 else copy.deepcopy(node[key]))
    else:
        node[chance.choice(list(node))] = node[key]


def _part(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    """Deletes or repeats a run of items, or replaces a value of a dict by one from any place."""
    if not isinstance(node, list):
        other, name = chance.choice(places)
        node[key] = other[name]
        return
    start = chance.randrange(len(node))
    part = node[start : start + chance.choice((1, 3, 20))]
    node[start : start + (len(part) if chance.random() < 0.5 else 0)] = [] if chance.random() < 0.5 else part


def _column(node: Any, key: Any, places: Places, chance: random.Random) -> None:
    """Changes some numbers of a column stored as bytes, as a recorder writes it, or the length of the column.

    New numbers may come from another column.
    """
    numbers = [
        int.from_bytes(node[key][at : at + 8], "little", signed=True) for at in range(0, len(node[key]) - 7, 8)
    ] or [0]
    others = [value for name, other in places if isinstance(value := name[other], bytes) and len(value) >= 8]
    kind = chance.randrange(6)
    if kind == 0:
        node[key] = chance.choice(others)
        return
    if kind == 1:
        numbers = numbers * chance.choice((2, 7, 100))
    elif kind == 2:
        del numbers[chance.randrange(len(numbers)) :]
    else:
        for _ in range(chance.choice((1, 1, 3, 20))):
            at = chance.randrange(len(numbers))
            near = numbers[chance.randrange(len(numbers))] + chance.choice((0, 1, -1, 7, 512, 1000))
            numbers[at] = chance.choice((near, near, near, chance.choice(_NUMBERS)))
    packed = b"".join((number & (1 << 64) - 1).to_bytes(8, "little") for number in numbers)
    node[key] = packed[: chance.choice((len(packed), len(packed), len(packed), len(packed) - 3))]


_STEPS = (_near_number, _near_number, _near_number, _share, _share, _number, _other, _delete, _swap, _again, _part)


def _tree_step(tree: Any, chance: random.Random) -> Any:
    places = _places(tree)
    if not places:
        return chance.choice(_OTHERS)
    # There are many deep places and few shallow ones, so sometimes choose one of the first few.
    node, key = chance.choice(places[:12] if chance.random() < 0.15 else places)
    columns = [place for place in places if isinstance(place[0][place[1]], bytes) and len(place[0][place[1]]) >= 8]
    if columns and chance.random() < 0.3:
        node, key = chance.choice(columns)
    is_column = isinstance(node[key], bytes) and len(node[key]) >= 8
    step = _column if is_column and chance.random() < 0.8 else chance.choice(_STEPS)
    step(node, key, places, chance)
    return tree
