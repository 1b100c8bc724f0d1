"""PyTorch's caching allocator on Intel GPUs: clauses in brackets before 2.6, sentences since; some releases print no free memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.caching import messages
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed

FORMATS = ("torch_xpu",)
ANCHORS = ("xpuoutofmemory", "(xpu")
_OLD = "XPU out of memory. Tried to allocate 96.00 MiB (GPU 0; 15.56 GiB total capacity; 14.80 GiB already allocated; "
_NEW = "XPU out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 15.11 GiB of which 310.00 MiB is free. "
_POOL = "Of the allocated memory 14.40 GiB is allocated by PyTorch, and 401.00 MiB is reserved by PyTorch but unallocated. "
_HINT = "Please use `empty_cache` to release all unoccupied cached memory."
EXAMPLES = (
    ("torch_xpu", f"RuntimeError: {_OLD}15.10 GiB reserved in total by PyTorch)"),
    ("torch_xpu", f"torch.OutOfMemoryError: {_NEW}{_POOL}{_HINT}"),
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for _, found in messages(text, "xpu"):
        yield replace(found, dialect="torch_xpu")
