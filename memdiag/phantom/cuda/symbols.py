"""Reads the symbols that a shared library provides and requires: functions, needed libraries, symbol versions.

The libraries of the toolkit and of PyTorch have up to a gigabyte; only their tables are read.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_DYNSYM, _DYNAMIC, _VERNEED = 11, 6, 0x6FFFFFFE
_NEEDED, _SONAME = 1, 14
_FUNCTION, _INDIRECT = 2, 10


@dataclass(frozen=True)
class Symbols:
    """The tables of one library.

    Attributes:
        soname: Name by which others need it.
        needed: Libraries that it needs.
        versioned: Needed libraries whose symbols it requires by version, with that version's name.
        undefined: Symbols that it requires.
        functions: Functions that it provides.
    """

    soname: str
    needed: tuple[str, ...]
    versioned: dict[str, str]
    undefined: frozenset[str]
    functions: frozenset[str]


_NOTHING = Symbols("", (), {}, frozenset(), frozenset())


def read(path: Path) -> Symbols:
    """Returns the tables of the library at ``path``; empty ones if it is not a 64-bit ELF file."""
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            return _NOTHING
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                return _tables(content)
            except struct.error:  # truncated
                return _NOTHING


def _tables(content: mmap.mmap) -> Symbols:
    start, size, count = struct.unpack_from("<Q", content, 40)[0], *struct.unpack_from("<HH", content, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, start + index * size) for index in range(count)]
    undefined: set[str] = set()
    functions: set[str] = set()
    entries: list[tuple[int, str]] = []
    versioned: dict[str, str] = {}
    for _, kind, _, _, at, length, link, info, _, _ in sections:
        if kind not in {_DYNSYM, _DYNAMIC, _VERNEED}:
            continue
        names = sections[link][4]
        if kind == _DYNSYM:
            for name, symbol, _, section, _, _ in struct.iter_unpack("<IBBHQQ", content[at : at + length]):
                if not section:
                    undefined.add(_text(content, names + name))
                elif symbol & 15 in {_FUNCTION, _INDIRECT}:
                    functions.add(_text(content, names + name))
        elif kind == _DYNAMIC:
            for tag, value in struct.iter_unpack("<QQ", content[at : at + length]):
                if tag in {_NEEDED, _SONAME}:
                    entries.append((tag, _text(content, names + value)))
        else:
            versioned = _versions(content, at, names, info)
    return Symbols(
        soname=next((text for tag, text in entries if tag == _SONAME), ""),
        needed=tuple(text for tag, text in entries if tag == _NEEDED),
        versioned=versioned,
        undefined=frozenset(undefined),
        functions=frozenset(functions),
    )


def _versions(content: mmap.mmap, at: int, names: int, count: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(count):
        _, _, library, first, following = struct.unpack_from("<HHIII", content, at)
        _, _, _, version, _ = struct.unpack_from("<IHHII", content, at + first)
        found[_text(content, names + library)] = _text(content, names + version)
        at += following
    return found


def _text(content: mmap.mmap, at: int) -> str:
    return content[at : content.find(b"\0", at)].decode("utf-8", "replace")
