"""Out-of-memory messages as a dialect finds them."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.diagnosis.remedies.lazy_fix import LazyFix
from memdiag.results.oom import Judgement

# Bytes (``*_bytes``), numbers, pairs of (pid, bytes), shapes and names: only printed ones, under the names of
# docs/oom-json.md.
Fields = dict[str, object]


@dataclass(frozen=True, slots=True)
class Found:
    """One message as a dialect reads it, at a place of a squeezed text.

    Attributes:
        start: Where it begins in the squeezed text.
        end: Where it ends there (half open): everything in between belongs to it.
        dialect: Name of the form ("torch_cuda_21"), one of the dialect's FORMATS.
        framework: Whose message it is ("pytorch", "vllm", "jax", …).
        backend: "cuda", "hip", "npu", "xpu", "mps", "hpu", "tpu", "metal" or "cpu".
        fields: What is printed.
        judgement: The cause, where the dialect knows better than the arithmetic of ``verdict``.
        fixes: Remedies that only this dialect knows, ranked; shown before the general ones.
        is_warning: The program goes on after it: reported only if nothing worse is found.
        marks: Facts in the text for verdict and advice, such as "hint:max_split_size_mb" (what the message itself
            suggests).
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
