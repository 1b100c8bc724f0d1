"""Lists the live tensors of this process with the variables that hold them: ``memdiag.live()``."""

from __future__ import annotations

import sys
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.recorder.holders import LiveStorage, live_tensors
from memdiag.results.live import LiveTensor, LiveTensors
from memdiag.text import phrase


def live(top: int = 20, *, seconds: float = 2.0, growing: bool = False) -> LiveTensors:
    """Returns the live tensors of this process, the largest first, with who refers to them.

    A holder is a variable, a module, an optimizer, a closure, a traceback, or the output of a notebook cell. Garbage
    that was not yet collected counts as live, without a holder.

    Args:
        top: Number of tensors to list.
        seconds: Time limit of the search for holders.
        growing: List only tensors that did not exist at the previous call of ``live``.

    Raises:
        MemdiagError: The program has not imported torch.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        raise MemdiagError(phrase("notebook.no-torch"), phrase("notebook.no-torch.hint"))
    found, is_complete = live_tensors(torch, top=top, seconds=seconds, growing=growing)
    return LiveTensors(
        tensors=tuple(_row(each) for each in found[:top]),
        num_storages=len(found),
        num_bytes=sum(each.num_bytes for each in found),
        is_complete=is_complete,
        unseen_bytes=None if growing else _unseen(torch, found),
    )


def _row(each: LiveStorage) -> LiveTensor:
    tensor = each.tensor
    graph = getattr(tensor, "grad_fn", None)
    return LiveTensor(
        num_bytes=each.num_bytes,
        device=str(tensor.device),
        shape=tuple(int(size) for size in tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        num_tensors=each.num_tensors,
        holders=tuple(each.holders),
        graph="" if graph is None else str(graph.name()),
    )


def _unseen(torch: Any, found: list[LiveStorage]) -> int | None:
    """Returns the allocated bytes of accelerators that no Python object shows, or None without an accelerator."""
    total = None
    for name in ("cuda", "npu", "xpu"):
        module = getattr(torch, name, None)
        if module is None or not getattr(module, "is_initialized", bool)():
            continue
        allocated = sum(module.memory_allocated(index) for index in range(module.device_count()))
        seen = sum(each.num_bytes for each in found if each.tensor.device.type == name)
        total = (total or 0) + max(0, allocated - seen)
    return total
