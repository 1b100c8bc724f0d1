"""PyTorch's caching allocator on Intel GPUs: clauses in brackets before 2.6, sentences since; some releases print no free memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.caching import BARE, bare_heads, messages
from memdiag.oom.model import Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern

FORMATS = ("torch_xpu",)
ANCHORS = ("xpuoutofmemory", "(xpu", "error_out_of_device_memory")
_OLD = "XPU out of memory. Tried to allocate 96.00 MiB (GPU 0; 15.56 GiB total capacity; 14.80 GiB already allocated; "
_NEW = "XPU out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 15.11 GiB of which 310.00 MiB is free. "
_POOL = "Of the allocated memory 14.40 GiB is allocated by PyTorch, and 401.00 MiB is reserved by PyTorch but unallocated. "
_HINT = "Please use `empty_cache` to release all unoccupied cached memory."
EXAMPLES = (
    ("torch_xpu", f"RuntimeError: {_OLD}15.10 GiB reserved in total by PyTorch)"),
    ("torch_xpu", f"torch.OutOfMemoryError: {_NEW}{_POOL}{_HINT}"),
)

_DRIVER = pattern(r"(?:\w{1,20} backend failed with error : -?\d{1,10} \( )? (?:UR_RESULT|PI|ZE_RESULT)_ERROR_OUT_OF_DEVICE_MEMORY \)?")
_REFUSED = Judgement(
    "unknown",
    "low",
    ("capacity", "limit"),
    ("The driver refused, not PyTorch's pool: the card is full, or the piece is larger than it gives at once (4 GiB unless relaxed).",),
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for _, found in messages(text, "xpu"):
        yield replace(found, dialect="torch_xpu")
    for start, end in bare_heads(text, "xpu"):
        yield Found(start, end, "torch_xpu", "pytorch", "xpu", judgement=BARE)
    for match in _DRIVER.finditer(text.text):
        if not text.is_code(match.start()):
            yield Found(match.start(), match.end(), "torch_xpu", "pytorch", "xpu", judgement=_REFUSED)
