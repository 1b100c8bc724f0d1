"""Recorded rows of the real allocators, and the execution of calls by a reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.allocator.reference_heap import Block, OutOfMemory, Undefined

SHARED = Path(__file__).parents[3] / "shared/data"
COUNTERS = ("reserved", "allocated", "active", "requested", "retries", "ooms", "device_allocs", "device_frees")
OK, OUT_OF_MEMORY, SKIPPED, UNDEFINED = range(4)


class Call(NamedTuple):
    op: str
    tensor: int
    size: int
    stream: int


def calls(recorded: Any) -> list[Call]:
    ops = [str(name) for name in recorded["ops"]]
    columns = (recorded[name].tolist() for name in ("op", "id", "size", "stream"))
    return [Call(ops[op], *rest) for op, *rest in zip(*columns, strict=True)]


def do(allocator: Any, call: Call) -> tuple[int, Block | None]:
    """Executes one call; returns its status and its block."""
    name, tensor, size, stream = call
    given = {
        "alloc": (tensor, size, stream),
        "record_stream": (tensor, stream),
        "complete": (stream,),
        "set_fraction": (size / 1e9,),
        "pool_begin": (tensor, stream, size),
        "external": (size,),
        "set_total": (size,),
        "empty_cache": (),
        "reset_peak": None,
    }.get(name, (tensor,))
    if name == "sync":
        name, given = "complete", (-1,)
    if given is None:
        return OK, None
    try:
        result = getattr(allocator, name)(*given)
    except OutOfMemory:
        return OUT_OF_MEMORY, None
    except Undefined:
        return UNDEFINED, None
    return (SKIPPED, None) if result is False else (OK, result if name == "alloc" else None)


def run(allocator: Any, todo: Iterable[Call]) -> Iterator[tuple[int, ...]]:
    """Yields status, segment, offset, size of the block and counters of every call up to undefined behaviour."""
    for call in todo:
        status, block = do(allocator, call)
        where = (block.segment.number, block.off, block.size) if block else (-1, -1, -1)
        yield status, *where, *(getattr(allocator, name) for name in COUNTERS)
        if status == UNDEFINED:
            return


def expected(recorded: Any, setting: int) -> dict[str, np.ndarray]:
    """Returns columns of the real CUDA allocator; the status is as recorded (3: it raised)."""
    found = {name: np.cumsum(recorded[f"{setting}/{name}"]) for name in ("seg", "off", *COUNTERS)}
    return {"status": recorded[f"{setting}/status"], **found}
