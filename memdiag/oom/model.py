"""Out-of-memory messages as found by a dialect."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement

# Bytes (``*_bytes``), numbers, pairs of (pid, bytes), shapes and names: only printed ones, named as in
# docs/oom-json.md.
Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class Found:
    """One message as read by a dialect, at a position of a squeezed text.

    Attributes:
        start: Start in the squeezed text.
        end: End in the squeezed text (exclusive); everything in between belongs to the message.
        dialect: Name of the form ("torch_cuda_21"), one of the dialect's FORMATS.
        framework: Framework that printed it ("pytorch", "vllm", "jax", …), a name of the dialect's NAMES or of
            ``memdiag.oom.frameworks``.
        backend: "cuda", "hip", "npu", "xpu", "musa", "mlu", "mps", "hpu", "tpu", "neuron", "metal", "vulkan", "opencl",
            "directml" or "cpu".
        fields: Printed values.
        judgement: The cause, if the dialect knows more than the arithmetic of ``verdict``.
        fixes: Ranked remedies that only this dialect knows; shown before the general ones.
        is_warning: Whether the program continues after it: reported only without a worse message.
        marks: Facts in the text for verdict and advice, such as "hint:max_split_size_mb" (suggested by the message
            itself).
        program: Name of the framework for people. The reader sets it.
        allocator: Owner of the caching allocator whose numbers it prints; "": PyTorch or the framework itself.
    """

    start: int
    end: int
    dialect: str
    framework: str
    backend: str
    fields: Fields = field(default_factory=dict)
    judgement: Judgement | None = None
    fixes: tuple[LazyFix, ...] = ()
    is_warning: bool = False
    marks: frozenset[str] = frozenset()
    program: str = ""
    allocator: str = ""
