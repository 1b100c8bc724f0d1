"""PyTorch's caching allocator on CUDA and HIP: every wording since 0.4."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take

FORMATS = ("torch_cuda_21",)
ANCHORS = ("outofmemory.triedtoallocate",)
EXAMPLES = (
    (
        "torch_cuda_21",
        "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 47.41 GiB of which 270.69 MiB is free.",
    ),
)

_HEAD = pattern(r"CUDA out of memory \. Tried to allocate {requested:size}")
_CLAUSES = (
    pattern(r"GPU {device_index:int} has a total capaci?ty of {total:size}"),
    pattern(r"of which {free:size} is free"),
    pattern(r"Of the allocated memory {allocated:size} is allocated by PyTorch"),
    pattern(r"and {unallocated:size} is reserved by PyTorch but unallocated"),
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    heads = list(_HEAD.finditer(text.text))
    for head, following in zip(heads, [*heads, None][1:], strict=True):
        fields, end = take(head), head.end()
        limit = min(following.start() if following else len(text.text), end + 3000)
        for clause in _CLAUSES:
            match = clause.search(text.text, head.end(), limit)
            if match:
                fields |= take(match)
                end = max(end, match.end())
        yield Found(head.start(), end, "torch_cuda_21", "pytorch", "cuda", fields)
