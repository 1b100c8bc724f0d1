"""HCCL, Ascend's collective communication: its buffers and queue pairs, allocated outside the framework's pool.

Each communicator allocates two buffers of HCCL_BUFFSIZE (200 MB each by default) on every device on first use.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis.remedies.libraries import HCCL_BUFFERS
from memdiag.oom.ascend import blocks
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.programs import FUSED_COMMUNICATION
from memdiag.oom.squeezed import Squeezed
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.sizes.npu import HCCL_BUFFER_MB
from memdiag.text import phrase
from memdiag.units import MIB

FORMATS = ("hccl",)
NAMES = {"cann-hccl": "HCCL (CANN)"}
ANCHORS = ("failedtoallocateresource[", "ei0011", "ei0007", "hcclfunctionerror", "el0004", "207001")
_QUEUE_PAIR = "Failed to allocate [size: [0.25MB, 3MB], Affected by QP depth configuration.] bytes of NPU memory."
_OPERATOR = "current working operator name is HcclAllGather"
_RESOURCE = "Failed to allocate resource[DeviceMemory] with info [size:420478976]"
EXAMPLES = (
    ("hccl", f"{_OPERATOR}\nMemory_Allocation_Failure(EL0004): Failed to allocate memory\n{_RESOURCE}"),
    (
        "hccl",
        f"[PID: 4711] 2025-03-04-05:06:07.008.009 Resource_Error_Insufficient_Device_Memory(EI0011): {_QUEUE_PAIR}",
    ),
)

_BUFFER_FIX = HCCL_BUFFERS.text
_FEWER = LazyFix("oom_ascend.fewer", "code", "", {"size": HCCL_BUFFER_MB})
_ROOM = LazyFix("oom_ascend.room", "code", "torch_npu.npu.set_per_process_memory_fraction(0.92)")
_ROOM_VLLM = LazyFix("oom_ascend.room.vllm", "flag", "--gpu-memory-utilization 0.85", caveat="oom_shared.fewer-tokens")
_LESS = LazyFix("oom_ascend.less", "code")
_REACH = 1500


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for block in blocks(text):
        if block.is_hccl(text.text):
            reasons: tuple[str, ...] = (
                _arithmetic(number(block.fields, "requested_bytes")),
                phrase("oom_ascend.why.hccl"),
            )
            judgement = Judgement("workspace_or_comm", "high", ("capacity", "other_process"), reasons)
            around = text.text[max(block.start - _REACH, 0) : block.end + _REACH]
            room = _ROOM_VLLM if "vllm" in around.lower() else _ROOM
            fused = FUSED_COMMUNICATION.search(around)
            if fused:
                reasons = (
                    *reasons,
                    phrase("oom_ascend.why.fused"),
                )
            fixes = (room, _FEWER, _LESS) if fused else (_BUFFER_FIX, room, _FEWER)
            yield Found(block.start, block.end, "hccl", "cann-hccl", "npu", block.fields, judgement, fixes)


def _arithmetic(requested: int | None) -> str:
    """Returns a reason from the size: a pair of buffers, sometimes with an additional MiB, is a multiple of 2 MiB."""
    if requested is None:
        return phrase("oom_ascend.why.hccl.none", size=HCCL_BUFFER_MB)
    for extra in (0, MIB):
        size = (requested - extra) // (2 * MIB)
        if requested - extra == 2 * size * MIB and size >= HCCL_BUFFER_MB // 2:
            values = {"requested": shown(requested), "size": size}
            return (
                phrase("oom_ascend.why.hccl.pair.more", **values)
                if extra
                else phrase("oom_ascend.why.hccl.pair", **values)
            )
    return phrase("oom_ascend.why.hccl.size", requested=shown(requested), size=HCCL_BUFFER_MB)
