"""HCCL, Ascend's collective communication: its buffers and queue pairs, taken beside the framework's pool.

Each communicator takes two buffers of HCCL_BUFFSIZE (200 MB each unless set) on every device, the first time that it is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.ascend import blocks
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found, Judgement
from memdiag.oom.programs import FUSED_COMMUNICATION
from memdiag.oom.squeezed import Squeezed
from memdiag.units import MIB

FORMATS = ("hccl",)
ANCHORS = ("failedtoallocateresource[", "ei0011", "ei0007", "hcclfunctionerror", "el0004", "207001")
_QUEUE_PAIR = "Failed to allocate [size: [0.25MB, 3MB], Affected by QP depth configuration.] bytes of NPU memory."
_OPERATOR = "current working operator name is HcclAllGather"
_RESOURCE = "Failed to allocate resource[DeviceMemory] with info [size:420478976]"
EXAMPLES = (
    ("hccl", f"{_OPERATOR}\nMemory_Allocation_Failure(EL0004): Failed to allocate memory\n{_RESOURCE}"),
    ("hccl", f"[PID: 4711] 2025-03-04-05:06:07.008.009 Resource_Error_Insufficient_Device_Memory(EI0011): {_QUEUE_PAIR}"),
)

_BUFFER_MB = 200  # HCCL_BUFFSIZE where nothing is set
_BUFFER_FIX = Fix(
    "Make HCCL's buffers smaller",
    "env",
    "export HCCL_BUFFSIZE=100",
    "CANN; in MB, of every rank alike",
    f"A communicator takes 2 x HCCL_BUFFSIZE ({2 * _BUFFER_MB} MB where unset). Large collectives get slower; MC2 kernels need much.",
)
_FEWER = Fix(
    "Make fewer communicators",
    "code",
    "",
    "Megatron, MindSpeed, DeepSpeed",
    f"Every process group that communicates takes its own 2 x {_BUFFER_MB} MB: groups of the same ranks can be one.",
)
_ROOM = Fix(
    "Leave room beside the pool",
    "code",
    "torch_npu.npu.set_per_process_memory_fraction(0.92)",
    "torch_npu, after set_device() and before the first tensor on the device; vLLM: a lower --gpu-memory-utilization",
    "PyTorch cannot give back what it has cached when HCCL asks: the pool must stay smaller from the start.",
)
_ROOM_VLLM = Fix(
    "Leave room beside the pool of vLLM", "flag", "--gpu-memory-utilization 0.85", "vLLM on Ascend", "fewer tokens fit the KV cache"
)
_LESS = Fix(
    "Need less in the pool: a smaller batch or fewer tokens at once", "code", "", "every framework", "HCCL then finds more beside it"
)
_REACH = 1500


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for block in blocks(text):
        if block.is_hccl(text.text):
            reasons: tuple[str, ...] = (
                _arithmetic(number(block.fields, "requested_bytes")),
                "HCCL's memory comes from the driver, beside the framework's pool.",
            )
            judgement = Judgement("workspace_or_comm", "high", ("capacity", "other_process"), reasons)
            around = text.text[max(block.start - _REACH, 0) : block.end + _REACH]
            room = _ROOM_VLLM if "vllm" in around.lower() else _ROOM
            fused = FUSED_COMMUNICATION.search(around)
            if fused:
                reasons = (
                    *reasons,
                    "Kernels that communicate (MC2, experts' dispatch and combine) need large HCCL buffers: do not shrink them.",
                )
            fixes = (room, _FEWER, _LESS) if fused else (_BUFFER_FIX, room, _FEWER)
            yield Found(block.start, block.end, "hccl", "cann-hccl", "npu", block.fields, judgement, fixes)


def _arithmetic(requested: int | None) -> str:
    """Returns what the size says: a pair of buffers, sometimes with a MiB beside them, is a multiple of 2 MiB."""
    if requested is None:
        return f"HCCL could not get memory; a communicator's buffers alone are 2 x {_BUFFER_MB} MB unless HCCL_BUFFSIZE says otherwise."
    for extra in (0, MIB):
        size = (requested - extra) // (2 * MIB)
        if requested - extra == 2 * size * MIB and size >= _BUFFER_MB // 2:
            more = " + 1 MB" if extra else ""
            return f"The {shown(requested)} asked for are a communicator's two buffers: 2 x HCCL_BUFFSIZE of {size} MB{more}."
    return f"HCCL asked for {shown(requested)}; a communicator's buffers are 2 x HCCL_BUFFSIZE ({_BUFFER_MB} MB unless set)."
