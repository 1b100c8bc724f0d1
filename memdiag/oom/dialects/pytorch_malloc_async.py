"""PyTorch with the backend cudaMallocAsync: the driver's own pool, whose message has a line for each number."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.dialects.parts import gather, stretches
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take

FORMATS = ("torch_cuda_mallocasync",)
ANCHORS = ("wouldexceedallowedmemory", "free(accordingtocuda)")
_FIRST = "Allocation on device 1 would exceed allowed memory. (out of memory)\nCurrently allocated     : 21.30 GiB\n"
_THEN = "Requested               : 1.25 GiB\nDevice limit            : 23.64 GiB\nFree (according to CUDA): 90.06 MiB\n"
_LAST = "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB"
EXAMPLES = (("torch_cuda_mallocasync", f"torch.cuda.OutOfMemoryError: {_FIRST}{_THEN}{_LAST}"),)

_HEAD = pattern(r"Allocation on device {device_index:int}? would exceed allowed memory .? (?: \( out of memory \) )?")
_CLAUSES = (
    pattern(r"Currently allocated : {allocated:size}"),
    pattern(r"Requested : {requested:size}"),
    pattern(r"Device limit : {total:size}"),
    pattern(r"Free \( according to CUDA \) : {free:size}"),
    pattern(r"PyTorch limit (?: \( set by user-supplied memory fraction \) )? : {limit:size}"),
)
_REACH = 500


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head, stop in stretches(text, _HEAD, _REACH):
        if text.is_code(head.start()):
            continue
        fields, end = gather(text, head.end(), stop, _CLAUSES)
        marks = frozenset({"backend:cudaMallocAsync", "exception:OutOfMemoryError"})
        yield Found(head.start(), end, "torch_cuda_mallocasync", "pytorch", "cuda", {**take(head), **fields}, marks=marks)
