"""PyTorch's message for impossible sizes: a request of an exbibyte (2^60 bytes) or more is refused immediately."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("torch_eb",)
ANCHORS = ("morethan1eb",)
EXAMPLES = (("torch_eb", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory."),)

_HEAD = pattern(
    r"(?:(?P<backend>CUDA|HIP|XPU|NPU|MUSA|MLU) out of memory .?)? Tried to allocate more than 1 EB (?: memory )?"
)


def _judgement() -> Judgement:
    return Judgement(
        "unknown",
        "high",
        (),
        (
            phrase("oom_torch.why.exabyte"),
            phrase("oom_torch.why.exabyte.async"),
        ),
    )


_FIX = LazyFix("oom_torch.exabyte", "code", "print(tensor.shape, lengths.min(), lengths.max())")
_SYNCHRONOUS = {
    "npu": LazyFix("oom_torch.blocking", "env", "export ASCEND_LAUNCH_BLOCKING=1", {"program": "torch_npu"}),
    "hip": LazyFix("oom_torch.blocking", "env", "export AMD_SERIALIZE_KERNEL=3", {"program": "ROCm"}),
    "cuda": LazyFix("oom_torch.blocking", "env", "export CUDA_LAUNCH_BLOCKING=1", {"program": "CUDA"}),
}


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _HEAD.finditer(text.text):
        if text.is_code(match.start()):
            continue
        backend = (match["backend"] or "cuda").lower()
        fixes = (_FIX, _SYNCHRONOUS[backend]) if backend in _SYNCHRONOUS else (_FIX,)
        yield Found(
            match.start(),
            match.end(),
            "torch_eb",
            "torch_npu" if backend == "npu" else "pytorch",
            backend,
            {},
            _judgement(),
            fixes,
        )
