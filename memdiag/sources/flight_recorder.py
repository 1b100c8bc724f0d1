"""Process groups in a dump of PyTorch's flight recorder (``TORCH_FR_BUFFER_SIZE``, ``nccl_trace_rank_0``).

A dump is a pickle of plain data, or JSON. It names the process groups with their ranks, which the log of NCCL does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdiag.errors import RefusedFile
from memdiag.sources.files import read_bytes
from memdiag.sources.guard import guard
from memdiag.sources.pickles import read_tape
from memdiag.text import phrase
from memdiag.units import MIB

_WHAT, _HINT = "sources.flight-recorder", "sources.flight-recorder.hint"
_MOST_BYTES = 64 * MIB  # of JSON, whose objects take many times as much
_MOST_GROUPS = 4096
_MOST_LETTERS = 80
_NUMBERS = re.compile(r"\d{1,9}")
_RANK = re.compile(r"(\d{1,9})(?:\.\w{1,8})?\Z")
_PICKLE = b"\x80"  # of protocol 2 or later, as PyTorch writes it
_UNNAMED = {"", "undefined"}


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group.

    Attributes:
        name: What the program calls it, or its number.
        ranks: Global ranks of its members, in order.
    """

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlightRecording:
    """The process groups of a dump.

    Attributes:
        groups: The groups, in order of creation.
        rank: Global rank of the process, from the name of the file, or None.
    """

    groups: tuple[ProcessGroup, ...]
    rank: int | None


def read_groups(path: Path) -> FlightRecording:
    """Reads the process groups of a dump. Nothing in it is executed.

    Raises:
        RefusedFile: It is no dump, or is damaged, or names no groups.
    """
    with guard(path, _WHAT, _HINT):
        data = read_bytes(path)
        config = _from_json(data) if data.lstrip()[:1] == b"{" else _from_pickle(data, str(path))
        if not isinstance(config, Mapping):
            raise ValueError("it has no 'pg_config'")
        groups = [found for each in list(config.values())[:_MOST_GROUPS] if (found := _group(each)) is not None]
        if not groups:
            raise RefusedFile(phrase("errors.no-groups", path=str(path)), phrase(_HINT))
        match = _RANK.search(path.name)
        return FlightRecording(tuple(groups), int(match[1]) if match else None)


def _from_json(data: bytes) -> Any:
    if len(data) > _MOST_BYTES:
        raise ValueError("it is larger than 64 MiB")
    found = json.loads(data)
    return found.get("pg_config") if isinstance(found, dict) else None


def _from_pickle(data: bytes, name: str) -> Any:
    if not data.startswith(_PICKLE):
        raise ValueError("it is neither a pickle nor JSON")
    tape = read_tape(data, name)
    config = tape.get(tape.root, "pg_config")
    return None if config is None else tape.python(config)


def _group(value: Any) -> ProcessGroup | None:
    """Returns a group with at least one rank; ranks are a list, or its text."""
    if not isinstance(value, Mapping):
        return None
    name = next((text for key in ("desc", "name") if (text := _text(value.get(key))) not in _UNNAMED), "")
    given = value.get("ranks")
    ranks = _NUMBERS.findall(given) if isinstance(given, str) else given if isinstance(given, list | tuple) else []
    numbers = tuple(int(rank) for rank in ranks if isinstance(rank, int | str))
    return ProcessGroup(name, numbers) if name and numbers else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value.isprintable() and len(value) <= _MOST_LETTERS else ""
