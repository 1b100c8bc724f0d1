"""PyTorch on Moore Threads' and Cambricon's devices: torch_musa and torch_mlu, with copies of PyTorch's allocator.

Their messages have the clauses of PyTorch's. The settings of the allocator are the same, in variables with other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.caching import bare, bare_heads, messages, rejection
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed

FORMATS = ("torch_musa", "torch_mlu")
ANCHORS = ("musaoutofmemory", "mluoutofmemory", "(mlu", "pytorch_musa_alloc", "pytorch_mlu_alloc")
_OLD = "95.00 GiB total capacity; 90.25 GiB already allocated; 61.50 MiB free; 93.75 GiB reserved in total by PyTorch)"
_NEW = "MLU 2 has a total capacity of 79.00 GiB of which 310.00 MiB is free. Of the allocated memory 71.40 GiB is "
EXAMPLES = (
    ("torch_musa", f"RuntimeError: MUSA out of memory. Tried to allocate 96.00 MiB (GPU 1; {_OLD}"),
    ("torch_mlu", f"RuntimeError: MLU out of memory. Tried to allocate 96.00 MiB (MLU 1; {_OLD}"),
    (
        "torch_mlu",
        (
            f"torch.OutOfMemoryError: MLU out of memory. Tried to allocate 1.00 GiB. {_NEW}allocated by PyTorch, and "
            "401.00 MiB is reserved by PyTorch but unallocated."
        ),
    ),
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for gathered, found in messages(text, "musa", "mlu"):
        judgement = rejection(found) if gathered.has("rejected") else None
        yield replace(found, dialect=f"torch_{found.backend}", judgement=judgement)
    for backend in ("musa", "mlu"):
        for start, end in bare_heads(text, backend):
            yield Found(start, end, f"torch_{backend}", "pytorch", backend, judgement=bare())
