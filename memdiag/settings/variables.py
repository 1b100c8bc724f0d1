"""Environment variables beside the allocator's own that decide about memory: what they do, which values work, which cost memory."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.findings import Severity

GPU = ("cuda", "hip")
NPU = ("npu",)
ALL = (*GPU, *NPU)


@dataclass(frozen=True, slots=True)
class Remark:
    """What to say where the value of a variable matches.

    Attributes:
        pattern: Regular expression for the whole value.
        code: Code of the finding.
        severity: As in findings.
        title: The problem in a few words.
        why: What happens.
        fix: The remedy, in an imperative sentence.
        beside: Needs this setting with this value among the allocator's ("expandable_segments", True); None: always.
    """

    pattern: str
    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    beside: tuple[str, bool] | None = None


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable.

    Attributes:
        name: Its name.
        meaning: What it does, in a sentence.
        backends: Where it is read.
        allowed: Regular expression for the values that work.
        range: The same in words.
        remarks: What to say of some values.
    """

    name: str
    meaning: str
    backends: tuple[str, ...]
    allowed: str
    range: str
    remarks: tuple[Remark, ...] = ()


_ON = "(?!0$).+"
_FLAG = "[01]"
_EXPANDABLE = ("expandable_segments", True)

VARIABLES: tuple[Variable, ...] = (
    Variable(
        "PYTORCH_NO_CUDA_MEMORY_CACHING", "Every tensor is taken from the driver and given back at once.", GPU, ".*", "anything",
        (
            Remark(
                ".*", "MD658", "warning", "PYTORCH_NO_CUDA_MEMORY_CACHING is set: no allocator setting has any effect",
                "it counts as set with any value, 0 too; every allocation then waits for the driver", "Unset it, unless you look for a bug",
            ),
        ),
    ),
    Variable(
        "PYTORCH_NO_NPU_MEMORY_CACHING", "Every tensor is taken from the driver and given back at once.", NPU, ".*", "1",
        (
            Remark(
                _ON, "MD658", "warning", "PYTORCH_NO_NPU_MEMORY_CACHING is set: no allocator setting has any effect",
                "every allocation then waits for the driver", "Unset it, unless you look for a bug",
            ),
        ),
    ),
    Variable(
        "CUDA_LAUNCH_BLOCKING", "Waits for every kernel to end, which makes errors appear where they arise.", GPU, _FLAG, "0 or 1",
        (Remark("1", "MD658", "info", "CUDA_LAUNCH_BLOCKING=1 makes everything slow", "it is for finding bugs", "Unset it when done"),),
    ),
    Variable(
        "ASCEND_LAUNCH_BLOCKING", "Waits for every operator to end, which makes errors appear where they arise.", NPU, _FLAG, "0 or 1",
        (Remark("1", "MD658", "info", "ASCEND_LAUNCH_BLOCKING=1 makes everything slow", "it is for finding bugs", "Unset it when done"),),
    ),
    Variable(
        "TORCH_NCCL_AVOID_RECORD_STREAMS",
        "Collectives keep their tensors alive by reference instead of marking them as used by NCCL's stream.",
        GPU, _FLAG, "0 or 1",
        (
            Remark(
                ".*", "MD655", "info", "TORCH_NCCL_AVOID_RECORD_STREAMS is deprecated: current versions of torch always do so",
                "before, 0 let freed buffers of collectives wait for NCCL's stream, which raised the peak", "Unset it on current versions",
            ),
        ),
    ),
    Variable(
        "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "Registers the allocator's segments with NCCL.", GPU, _FLAG, "0 or 1",
        (
            Remark(
                "1", "MD658", "warning", "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK does not go with expandable segments",
                "torch turns the hook off where segments are expandable", "Choose one of them", _EXPANDABLE,
            ),
        ),
    ),
    Variable("NCCL_CUMEM_ENABLE", "NCCL takes its buffers by the driver's virtual memory calls.", GPU, "0|1|-2", "0, 1 or -2"),
    Variable(
        "NCCL_BUFFSIZE", "Bytes of each buffer of each NCCL channel, outside PyTorch's memory (4194304).", GPU, "[1-9][0-9]*", "bytes",
        (
            Remark(
                "[1-9][0-9]{7,}", "MD658", "info", "NCCL_BUFFSIZE is large: it is paid for every channel of every communicator",
                "this memory shows up in no report of PyTorch", "Leave it at 4194304 unless measurements say otherwise",
            ),
        ),
    ),
    Variable(
        "CUBLAS_WORKSPACE_CONFIG", "Sizes and numbers of the workspaces that cuBLAS gets from PyTorch, in KiB.", GPU,
        "(:[0-9]+:[0-9]+)+", ":KiB:count, may be repeated (:4096:8)",
    ),
    Variable(
        "CUDA_MODULE_LOADING", "When kernels are loaded to the device.", GPU, "LAZY|EAGER", "LAZY or EAGER",
        (
            Remark(
                "EAGER", "MD658", "info", "CUDA_MODULE_LOADING=EAGER loads all kernels at the start",
                "the kernels of a build take hundreds of MiB of device memory", "Unset it, or write LAZY",
            ),
        ),
    ),
    Variable(
        "MULTI_STREAM_MEMORY_REUSE", "How memory used by communication streams becomes free again (1).", NPU, "[0-3]", "0 to 3",
        (
            Remark(
                "0", "MD658", "warning", "MULTI_STREAM_MEMORY_REUSE=0 lets buffers wait for the communication stream",
                "freed memory can be used again only after the stream has passed, which raises the peak", "Use 1, the default, or 3",
            ),
            Remark(
                "2", "MD658", "info", "MULTI_STREAM_MEMORY_REUSE=2 keeps tensors alive longer",
                "it holds references until the communication has been waited for", "Use 1, the default, or 3",
            ),
        ),
    ),
    Variable(
        "TASK_QUEUE_ENABLE", "How operators are handed to the device: 0 at once, 1 by a queue, 2 by a queue with more in it (1).",
        NPU, "[012]", "0, 1 or 2",
        (
            Remark(
                "2", "MD658", "info", "TASK_QUEUE_ENABLE=2 takes the workspace of operators outside the caching allocator",
                "each stream keeps a block as large as its largest operator needs; it is in neither allocated nor reserved",
                "Use 1 where the device is short of memory",
            ),
        ),
    ),
    Variable(
        "HCCL_BUFFSIZE", "MiB of each of the two buffers of every HCCL communicator, outside torch_npu's memory (200).", NPU,
        "[1-9][0-9]*", "MiB, 1 or more",
        (
            Remark(
                "[1-9][0-9]{3,}|[3-9][0-9]{2}", "MD658", "info", "HCCL_BUFFSIZE is large: every communicator takes twice as much",
                "this memory shows up in no report of torch_npu", "Leave it at 200 unless measurements say otherwise",
            ),
        ),
    ),
    Variable("P2P_HCCL_BUFFSIZE", "MiB of the buffers for sending from one device to another (20).", NPU, "[0-9]+", "MiB"),
    Variable("OOM_SNAPSHOT_ENABLE", "Writes a memory snapshot when memory runs out: 1 with history, 2 without.", NPU, "[012]", "0, 1 or 2"),
    Variable("OOM_SNAPSHOT_PATH", "The directory for that snapshot, which must exist.", NPU, ".+", "a directory"),
    Variable(
        "MEMORY_FRAGMENTATION", "Turns MindSpeed's memory fragmentation feature on.", NPU, _FLAG, "0 or 1",
        (
            Remark(
                "1", "MD658", "critical", "MEMORY_FRAGMENTATION=1 does not go with expandable_segments:True",
                "the feature brings an allocator of its own, whose segments are not expandable", "Choose one of them", _EXPANDABLE,
            ),
        ),
    ),
    Variable(
        "XLA_PYTHON_CLIENT_PREALLOCATE", "Whether JAX takes most of the device's memory at its start (true).", GPU,
        "(?i:true|false|1|0)", "true or false",
    ),
    Variable("XLA_PYTHON_CLIENT_MEM_FRACTION", "The share that JAX takes (0.75).", GPU, r"0?\.[0-9]+|1(\.0*)?", "0 to 1"),
    Variable("TF_FORCE_GPU_ALLOW_GROWTH", "Whether TensorFlow takes memory as it needs it, not all at its start.", GPU,
             "(?i:true|false)", "true or false"),
    Variable("TF_GPU_ALLOCATOR", "TensorFlow's allocator.", GPU, "cuda_malloc_async", "cuda_malloc_async"),
)  # fmt: skip
