"""Other environment variables that affect memory: their effect, valid values, and values that cost memory."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.finding import Severity
from memdiag.text import Phrase, phrase

GPU = ("cuda", "hip")
NPU = ("npu",)
ALL = (*GPU, *NPU)


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark for certain values of a variable. Its texts are in the catalogue ``conf_variables``.

    Attributes:
        pattern: Regular expression for the whole value.
        code: Code of the finding.
        severity: As in findings.
        text: Key of the title; ``text.why`` and ``text.fix`` are the explanation and the remedy.
        is_unset: Whether the remedy is to unset the variable.
        beside: Allocator setting and value that must also be set ("expandable_segments", True), or None.
    """

    pattern: str
    code: str
    severity: Severity
    text: str
    is_unset: bool = False
    beside: tuple[str, bool] | None = None

    @property
    def title(self) -> Phrase:
        """The problem in a few words."""
        return phrase(f"conf_variables.{self.text}")

    @property
    def why(self) -> Phrase:
        """The consequence."""
        return phrase(f"conf_variables.{self.text}.why")

    @property
    def fix(self) -> Phrase:
        """The remedy, in an imperative sentence."""
        return phrase(f"conf_variables.{self.text}.fix")


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable. The catalogue ``conf_variables`` has its effect and its valid values.

    Attributes:
        name: Name of the variable.
        backends: Backends that read it.
        allowed: Regular expression for the valid values.
        remarks: Remarks on certain values.
    """

    name: str
    backends: tuple[str, ...]
    allowed: str
    remarks: tuple[Remark, ...] = ()

    @property
    def meaning(self) -> Phrase:
        """Its effect, in a sentence."""
        return phrase(f"conf_variables.{self.name}")

    @property
    def range(self) -> Phrase:
        """The valid values, in words."""
        return (
            phrase("conf_variables.all.flag.range")
            if self.allowed == _FLAG
            else phrase(f"conf_variables.{self.name}.range")
        )


_ON = "(?!0$).+"
_FLAG = "[01]"
_EXPANDABLE = ("expandable_segments", True)

VARIABLES: tuple[Variable, ...] = (
    Variable(
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        GPU,
        ".*",
        (Remark(".*", "MD658", "warning", "no-cuda-caching", is_unset=True),),
    ),
    Variable(
        "PYTORCH_NO_NPU_MEMORY_CACHING", NPU, ".*", (Remark(_ON, "MD658", "warning", "no-npu-caching", is_unset=True),)
    ),
    Variable("CUDA_LAUNCH_BLOCKING", GPU, _FLAG, (Remark("1", "MD658", "info", "cuda-blocking", is_unset=True),)),
    Variable("ASCEND_LAUNCH_BLOCKING", NPU, _FLAG, (Remark("1", "MD658", "info", "ascend-blocking", is_unset=True),)),
    Variable(
        "TORCH_NCCL_AVOID_RECORD_STREAMS", GPU, _FLAG, (Remark(".*", "MD655", "info", "record-streams", is_unset=True),)
    ),
    Variable(
        "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
        GPU,
        _FLAG,
        (Remark("1", "MD658", "warning", "register-hook", beside=_EXPANDABLE),),
    ),
    Variable("NCCL_CUMEM_ENABLE", GPU, "0|1|-2"),
    Variable("NCCL_BUFFSIZE", GPU, "[1-9][0-9]*", (Remark("[1-9][0-9]{7,}", "MD658", "info", "nccl-buffers"),)),
    Variable("CUBLAS_WORKSPACE_CONFIG", GPU, "(:[0-9]+:[0-9]+)+"),
    Variable(
        "CUDA_MODULE_LOADING", GPU, "LAZY|EAGER", (Remark("EAGER", "MD658", "info", "eager-loading", is_unset=True),)
    ),
    Variable(
        "MULTI_STREAM_MEMORY_REUSE",
        NPU,
        "[0-3]",
        (
            Remark("0", "MD658", "warning", "stream-wait"),
            Remark("2", "MD658", "info", "stream-references"),
        ),
    ),
    Variable("TASK_QUEUE_ENABLE", NPU, "[012]", (Remark("2", "MD658", "info", "task-queue"),)),
    Variable(
        "HCCL_BUFFSIZE", NPU, "[1-9][0-9]*", (Remark("[1-9][0-9]{3,}|[3-9][0-9]{2}", "MD658", "info", "hccl-buffers"),)
    ),
    Variable("P2P_HCCL_BUFFSIZE", NPU, "[0-9]+"),
    Variable("OOM_SNAPSHOT_ENABLE", NPU, "[012]"),
    Variable("OOM_SNAPSHOT_PATH", NPU, ".+"),
    Variable(
        "MEMORY_FRAGMENTATION", NPU, _FLAG, (Remark("1", "MD658", "critical", "mindspeed-pools", beside=_EXPANDABLE),)
    ),
    Variable("XLA_PYTHON_CLIENT_PREALLOCATE", GPU, "(?i:true|false|1|0)"),
    Variable("XLA_PYTHON_CLIENT_MEM_FRACTION", GPU, r"0?\.[0-9]+|1(\.0*)?"),
    Variable("TF_FORCE_GPU_ALLOW_GROWTH", GPU, "(?i:true|false)"),
    Variable("TF_GPU_ALLOCATOR", GPU, "cuda_malloc_async"),
)
