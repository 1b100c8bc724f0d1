"""PyTorch on Apple's GPUs: memory is shared with the system, and PyTorch stops at the high watermark."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.dialects.parts import gather, number, shown, stretches
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("torch_mps",)
ANCHORS = (
    "mpsbackendoutofmemory",
    "mpsallocated:",
    "invalidbuffersize:",
    "commandbufferexitedwitherror",
    "commandbuffererrordomain",
)
_ALLOCATED = "MPS allocated: 15.20 GiB, other allocations: 310.50 MiB, max allowed: 18.13 GiB"
WORDS = ("invalid buffer",)
EXAMPLES = (
    (
        "torch_mps",
        f"RuntimeError: MPS backend out of memory ({_ALLOCATED}). Tried to allocate 3.00 GiB on private pool.",
    ),
    ("torch_mps", "RuntimeError: Invalid buffer size: 24.00 GiB"),
    (
        "torch_mps",
        (
            "Error: command buffer exited with error status.\n\tError: (null)\n"
            "\tInsufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
        ),
    ),
)

_HEAD = pattern(r"MPS backend out of memory | (?<!memory\()MPS allocated : (?=\d)")
_CLAUSES = (
    pattern(r"MPS allocated : {allocated:size}"),
    pattern(r"other allocations : {other_alloc:size}"),
    pattern(r"max allowed : {limit:size}"),
    pattern(r"Tried to allocate {requested:size}"),
)
_HINT = pattern(r"PYTORCH_MPS_HIGH_WATERMARK_RATIO")
_REACH = 500
# Metal's own error, as printed by PyTorch's kernel library (and by tensorflow-metal).
_METAL = pattern(
    r"(?:command buffer exited with error status \.? (?:.{0,200}?) | MTLCommandBufferErrorDomain Code=8 \\?\"?)"
    r" Insufficient Memory (?:\( 0{0,7}8 : kIOGPU\w{10,60} \))?"
)
_TENSORFLOW = re.compile(r"tensorflow|keras", re.IGNORECASE)
_BUFFER = pattern(r"Invalid buffer size : {requested:size}")
_PIECES = (
    LazyFix("oom_torch.slicing", "code", "pipe.enable_attention_slicing()"),
    LazyFix("oom_torch.shorter", "code"),
    LazyFix("oom_torch.float16", "code", "model = model.to(torch.float16)"),
)


def _refused() -> Judgement:
    return Judgement(
        "unknown",
        "low",
        ("capacity", "limit"),
        (phrase("oom_torch.why.metal"),),
    )


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head, stop in stretches(text, _HEAD, _REACH):
        fields, end = gather(text, head.start(), stop, _CLAUSES)
        if fields and not text.is_code(head.start()):
            hint = _HINT.search(text.text, head.start(), stop)
            marks = frozenset({"hint:high_watermark_ratio"}) if hint else frozenset[str]()
            stop = hint.end() if hint else end
            yield Found(
                head.start(), stop, "torch_mps", "pytorch", "mps", fields, _without_request(fields), marks=marks
            )
    for match in _METAL.finditer(text.text):
        framework = (
            "tensorflow"
            if _TENSORFLOW.search(text.text, max(match.start() - 2000, 0), match.end() + 500)
            else "pytorch"
        )
        yield Found(match.start(), match.end(), "torch_mps", framework, "mps", {}, _refused())
    for match in _BUFFER.finditer(text.text):
        fields = take(match)
        asked = shown(number(fields, "requested_bytes"))
        reasons = (phrase("oom_torch.why.buffer", size=asked),)
        judgement = Judgement("limit", "medium", ("capacity",), reasons)
        yield Found(match.start(), match.end(), "torch_mps", "pytorch", "mps", fields, judgement, _PIECES)


def _without_request(fields: Fields) -> Judgement | None:
    """Returns the cause if the request is truncated.

    PyTorch prints this only at its own watermark, so that was reached.
    """
    limit = number(fields, "limit_bytes")
    if limit is None or "requested_bytes" in fields:
        return None
    used = sum(number(fields, name) or 0 for name in ("allocated_bytes", "other_alloc_bytes"))
    reason = phrase("oom_torch.why.watermark", used=shown(used), limit=shown(limit))
    return Judgement("limit", "medium", ("capacity",), (reason,))
