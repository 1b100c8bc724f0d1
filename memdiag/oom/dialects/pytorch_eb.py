"""PyTorch's answer to sizes that no machine has: a request of an exbibyte (2^60 bytes) or more is refused before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.model import Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern

FORMATS = ("torch_eb",)
ANCHORS = ("morethan1eb",)
EXAMPLES = (("torch_eb", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory."),)

_HEAD = pattern(r"(?:(?P<backend>CUDA|HIP|XPU|NPU) out of memory .?)? Tried to allocate more than 1 EB (?: memory )?")
_JUDGEMENT = Judgement(
    "unknown",
    "high",
    (),
    (
        "2^60 bytes and more are no shortage of memory: a size was computed from garbage, such as a negative or uninitialised length.",
        "With asynchronous execution the garbage may come from an earlier operator that failed.",
    ),
)
_FIX = Fix(
    "Look at the shape that was asked for, where the traceback ends",
    "code",
    "print(tensor.shape, lengths.min(), lengths.max())",
    "",
    "freeing memory cannot help",
)
_SYNCHRONOUS = {
    "npu": Fix(
        "Run synchronously to find the operator", "env", "export ASCEND_LAUNCH_BLOCKING=1", "torch_npu", "slow: for finding it only"
    ),
    "hip": Fix("Run synchronously to find the operator", "env", "export AMD_SERIALIZE_KERNEL=3", "ROCm", "slow: for finding it only"),
    "cuda": Fix("Run synchronously to find the operator", "env", "export CUDA_LAUNCH_BLOCKING=1", "CUDA", "slow: for finding it only"),
}


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _HEAD.finditer(text.text):
        if text.is_code(match.start()):
            continue
        backend = (match["backend"] or "cuda").lower()
        fixes = (_FIX, _SYNCHRONOUS[backend]) if backend in _SYNCHRONOUS else (_FIX,)
        yield Found(match.start(), match.end(), "torch_eb", "torch_npu" if backend == "npu" else "pytorch", backend, {}, _JUDGEMENT, fixes)
