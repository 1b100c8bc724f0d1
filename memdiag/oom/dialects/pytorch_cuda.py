"""PyTorch's caching allocator on CUDA and HIP: every wording since 0.4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.caching import Gathered, bare, bare_heads, is_bracketed, messages, rejection
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed

FORMATS = (
    "torch_cuda_cached",
    "torch_cuda_reserved",
    "torch_cuda_reserved_hint",
    "torch_cuda_21",
    "torch_cuda_allowed",
    "torch_cuda_private_pool",
    "torch_cuda_multiproc",
    "torch_hip",
)
ANCHORS = (
    "cudaoutofmemory",
    "hipoutofmemory",
    "reservedintotalbypytorch",
    "isallocatedbypytorch",
    "reservedbypytorchbutunallocated",
    "totalcapacity;",
)
_OLD = (
    "CUDA out of memory. Tried to allocate 96.00 MiB (GPU 1; 15.90 GiB total capacity; 14.80 GiB already allocated; "
    "61.50 MiB free; "
)
_NEW = (
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.52 GiB of which 310.00 "
    "MiB is free. "
)
_ALLOCATED = "Of the allocated memory 21.40 GiB is allocated by PyTorch, "
_UNALLOCATED = "and 401.00 MiB is reserved by PyTorch but unallocated."
_HINT = " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
_OTHERS = "Process 4711 has 12.00 GiB memory in use. Process 4712 has 2.10 GiB memory in use. "
_THIS = "Including non-PyTorch memory, this process has 9.00 GiB memory in use."
EXAMPLES = (
    ("torch_cuda_cached", f"RuntimeError: {_OLD}301.25 MiB cached)"),
    ("torch_cuda_reserved", f"RuntimeError: {_OLD}15.10 GiB reserved in total by PyTorch)"),
    ("torch_cuda_reserved_hint", f"torch.cuda.OutOfMemoryError: {_OLD}15.10 GiB reserved in total by PyTorch){_HINT}"),
    ("torch_cuda_21", f"torch.OutOfMemoryError: {_NEW}{_ALLOCATED}{_UNALLOCATED}"),
    ("torch_cuda_allowed", f"torch.OutOfMemoryError: {_NEW}22.10 GiB allowed; {_ALLOCATED}{_UNALLOCATED}"),
    (
        "torch_cuda_private_pool",
        (
            f"torch.OutOfMemoryError: {_NEW}{_ALLOCATED}with 12.50 GiB allocated in private pools (e.g., CUDA Graphs), "
            f"{_UNALLOCATED}"
        ),
    ),
    ("torch_cuda_multiproc", f"torch.OutOfMemoryError: {_NEW}{_OTHERS}{_THIS}"),
    ("torch_hip", f"torch.OutOfMemoryError: {_NEW}{_ALLOCATED}{_UNALLOCATED}".replace("CUDA", "HIP")),
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for gathered, found in messages(text, "cuda", "hip"):
        dialect = "torch_hip" if found.backend == "hip" else _form(gathered, found)
        yield replace(found, dialect=dialect, judgement=rejection(found) if gathered.has("rejected") else None)
    for start, end in bare_heads(text, "hip"):
        yield Found(start, end, "torch_hip", "pytorch", "hip", judgement=bare())


def _form(gathered: Gathered, found: Found) -> str:
    """Returns the name of the wording; of several named clauses, the one that is most informative about the cause."""
    if is_bracketed(gathered):
        if gathered.has("cached"):
            return "torch_cuda_cached"
        return "torch_cuda_reserved_hint" if gathered.has("hint_reserved") else "torch_cuda_reserved"
    if gathered.has("allowed", "rejected"):
        return "torch_cuda_allowed"
    if gathered.has("private"):
        return "torch_cuda_private_pool"
    # 2.1 also lists one other process; that wording has a separate name.
    enough = 3 if "hint:max_split_size_mb" in found.marks else 2
    return "torch_cuda_multiproc" if gathered.num_processes >= enough else "torch_cuda_21"
