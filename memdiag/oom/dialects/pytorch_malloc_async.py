"""PyTorch with the backend cudaMallocAsync: the driver's own pool, whose message has one line per number."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.dialects.parts import gather, stretches
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("torch_cuda_mallocasync",)
ANCHORS = (
    "wouldexceedallowedmemory",
    "free(accordingtocuda)",
    "error:allocationondevice",
    "processing!!!allocationondevice",
    "exceptionmessage:",
    "gotanoom",
)
_FIRST = "Allocation on device 1 would exceed allowed memory. (out of memory)\nCurrently allocated     : 21.30 GiB\n"
_THEN = "Requested               : 1.25 GiB\nDevice limit            : 23.64 GiB\nFree (according to CUDA): 90.06 MiB\n"
_LAST = "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB"
EXAMPLES = (
    ("torch_cuda_mallocasync", f"torch.cuda.OutOfMemoryError: {_FIRST}{_THEN}{_LAST}"),
    ("torch_cuda_mallocasync", "torch.OutOfMemoryError: Allocation on device 0"),
    (
        "torch_cuda_mallocasync",
        "- **Exception Type:** torch.OutOfMemoryError\n- **Exception Message:** Allocation on device 1",
    ),
)

_HEAD = pattern(r"Allocation on device {device_index:int}? would exceed allowed memory .? (?: \( out of memory \) )?")
_CLAUSES = (
    pattern(r"Currently allocated : {allocated:size}"),
    pattern(r"Requested : {requested:size}"),
    pattern(r"Device limit : {total:size}"),
    pattern(r"Free \( according to CUDA \) : {free:size}"),
    pattern(r"PyTorch limit (?: \( set by user-supplied memory fraction \) )? : {limit:size}"),
)
# The text ends with the device, or before it: programs print only the first line (ComfyUI, in its log and in the report
# that it offers to copy), or the sizes were truncated.
_SHORT = pattern(
    r"(?:(?<=OutOfMemoryError:) | (?<=processing!!!)"
    r" | OutOfMemoryError [-*]{0,5} Exception Message: \*{0,2})"
    r" Allocation on device (?:{device_index:int} (?! \d | -\d\d-))? "
    r"(?! would exceed )"
    r" (?: This error means you ran out of memory on your GPU .? )? (?: Got an OOM, unloading all loaded models .? )?"
)
_COMFY = pattern(r"Got an OOM, unloading all loaded models")
_MARKS = frozenset({"backend:cudaMallocAsync", "exception:OutOfMemoryError"})


def _without_sizes() -> Judgement:
    return Judgement("unknown", "low", ("capacity", "other_process"), (phrase("oom_cuda.why.first-line"),))


_REACH = 500
_FAILURE_WORDS = ("outofmemory", "allocationondevice")
_AFTER = 4000  # a traceback, and ComfyUI's text about it


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head, stop in stretches(text, _HEAD, _REACH):
        if text.is_code(head.start()):
            continue
        fields, end = gather(text, head.end(), stop, _CLAUSES)
        yield Found(
            head.start(), end, "torch_cuda_mallocasync", "pytorch", "cuda", {**take(head), **fields}, marks=_MARKS
        )
    for match in _SHORT.finditer(text.text):
        yield Found(
            match.start(),
            match.end(),
            "torch_cuda_mallocasync",
            "pytorch",
            "cuda",
            take(match),
            _without_sizes(),
            marks=_MARKS,
        )
    for match in _COMFY.finditer(text.text):
        before = text.text[max(match.start() - _AFTER, 0) : match.start()].lower()
        if not any(words in before for words in _FAILURE_WORDS):
            yield Found(match.start(), match.end(), "torch_cuda_mallocasync", "pytorch", "cuda", {}, _without_sizes())
