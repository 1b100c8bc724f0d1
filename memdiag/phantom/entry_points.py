"""The functions that an installed torch_npu requires from CANN, and the C source of those without an implementation.

torch_npu names them in two ways: as undefined symbols of its libraries, which must exist when it is loaded, and as
texts that it looks up later. Operators alone are about 1,800 names. Both are read from the libraries themselves, so no
lists per version are needed.
"""

from __future__ import annotations

import re
import struct
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).with_name("npu")
_OURS = re.compile(rb"(?:acl|Hccl|Msprof|rt(?=[A-Z])|mstx|dcmi|hal(?=[A-Z]))[A-Za-z0-9_]*")
_LOOKED_UP = re.compile(
    rb"(?<=\0)(?:acl(?:nn|rt|mdlRI|prof|sys|op)?[A-Z]|Hccl[A-Z]|mstx[A-Z]|dcmi(?:v2)?_|hal[A-Z])[A-Za-z0-9_]{2,79}"
    rb"(?=\0)"
)
_OPERATOR = re.compile(r"aclnn[A-Z][A-Za-z0-9_]*")
_WORKSPACE = "GetWorkspaceSize"
_DEFINED = re.compile(r"^EXPORT\b[^;{=]*?\b(\w+)\(", re.MULTILINE)


def generate(libraries: Iterable[Path]) -> str:
    """Returns the C source of all functions that ``libraries`` require and the simulated runtime lacks.

    Args:
        libraries: The shared libraries of torch_npu.
    """
    table = tomllib.loads((_FOLDER / "entry_points.toml").read_text(encoding="utf-8"))
    quiet = {name for names in table["quiet"].values() for name in names}
    defined = {name for source in _FOLDER.glob("*.c") for name in _DEFINED.findall(source.read_text(encoding="utf-8"))}
    wanted: set[str] = set()
    for library in libraries:
        content = library.read_bytes()
        wanted |= undefined_symbols(content) | {match.decode() for match in _LOOKED_UP.findall(content)}
    operators = {name.removesuffix(_WORKSPACE) for name in wanted if _OPERATOR.fullmatch(name)}
    lines = ['#include "phantom.h"']
    for name in sorted(operators):
        lines += [text for text in _operator(name, table) if text and _DEFINED.findall(text)[0] not in defined]
    for name in sorted((wanted | quiet) - operators - {name + _WORKSPACE for name in operators} - defined):
        answer = "0" if name in quiet else f'(uint64_t)refuse("{name}", "{_library(name, table["libraries"])}")'
        lines.append(f"EXPORT uint64_t {name}(void) {{ return {answer}; }}")
    return "\n".join(lines) + "\n"


def _operator(name: str, table: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the two functions of an operator.

    One returns its scratch memory size and takes its arguments, the other runs it.
    """
    runs = f"EXPORT uint64_t {name}(void) {{ return 0; }}"
    first = next((count for start, count in table["changes_first"].items() if name.startswith(start)), 0)
    if first:
        given = ", ".join(f"const void *a{number}" for number in range(first))
        named = ", ".join(f"a{number}" for number in range(first))
        return (
            f"EXPORT int {name}{_WORKSPACE}({given}) {{ return changed_first((const void *[]){{{named}}}, {first}); }}",
            runs,
        )
    if any(name.startswith(start) for start in table["changes_last"]["names"]):
        given = ", ".join(f"const void *a{number}" for number in range(8))
        named = ", ".join(f"a{number}" for number in range(8))
        return f"EXPORT int {name}{_WORKSPACE}({given}) {{ return changed_last((const void *[]){{{named}}}); }}", runs
    return f"EXPORT uint64_t {name}{_WORKSPACE}(void) {{ return 0; }}", runs


def _library(name: str, libraries: Mapping[str, str]) -> str:
    return next((library for start, library in libraries.items() if name.startswith(start)), "CANN")


def undefined_symbols(content: bytes) -> set[str]:
    """Returns CANN's functions that a shared library needs for loading; none if it is not a 64-bit ELF file."""
    if content[:6] != b"\x7fELF\x02\x01":
        return set()
    start, size, count = struct.unpack_from("<Q", content, 40)[0], *struct.unpack_from("<HH", content, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, start + index * size) for index in range(count)]
    found: set[str] = set()
    for section in sections:
        if section[1] != 11:  # SHT_DYNSYM
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, defined_in = struct.unpack_from("<IBBH", content, at)
            if not defined_in and (match := _OURS.match(content, names + name)) and content[match.end()] == 0:
                found.add(match.group().decode())
    return found
