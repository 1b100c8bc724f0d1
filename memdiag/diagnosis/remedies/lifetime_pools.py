"""Lifetime-segregated pools of MindSpeed and AscendSpeed (NPU): on or off, and the memory that HCCL then needs."""

from __future__ import annotations

from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies.model import Plain, Situation
from memdiag.diagnosis.thresholds import POOLS_GAP
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.sizes.npu import HCCL_BUFFER_MB
from memdiag.units import MIB, format_bytes

_HCCL = 2 * HCCL_BUFFER_MB * MIB  # one communicator


def _apply(situation: Situation) -> bool:
    is_gap_wide = (situation.facts.slack or 0) > POOLS_GAP or not situation.facts.is_printed  # a trace is replayed
    is_off = situation.backend == "npu" and situation.framework == "torch_npu" and not situation.has_lifetime_pools
    return is_off and is_gap_wide


class _TurnOff:
    """Turns the pools off, because they exclude expandable segments, which leave less free memory unusable."""

    key = "remedies.no-lifetime-pools"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the setting that replaces the pools; None if they are not on."""
        if not situation.has_lifetime_pools or not situation.can_be_set:
            return None
        line = f"{situation.line({'expandable_segments': 'True'})}  # and start without --memory-fragmentation"
        return LazyFix("remedies.no-lifetime-pools", "env", line).fix()


class _HcclRoom:
    """Limits PyTorch's allocator to leave memory for HCCL, because PyTorch does not release cached memory for HCCL."""

    key = "remedies.hccl"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the limit that leaves the memory in use outside the allocator, and one more HCCL communicator.

        Returns None if a needed size is unknown, or if the limit would be below half of the device.
        """
        hundredths = _hundredths(situation.facts)
        if situation.backend != "npu" or hundredths is None:
            return None
        return self.limited(f"0.{hundredths:02d}", (situation.facts.total or 0) * hundredths // 100)

    def limited(self, fraction: str, left_bytes: int) -> Fix:
        """Returns the limit of PyTorch to ``fraction`` of the device, which is ``left_bytes``."""
        line = f"torch_npu.npu.set_per_process_memory_fraction({fraction})"
        return LazyFix("remedies.hccl", "code", line, {"left": format_bytes(left_bytes)}).fix()


def _hundredths(facts: Facts) -> int | None:
    if not facts.total or facts.outside is None or facts.reserved is None:
        return None
    hundredths = (facts.total - facts.outside - _HCCL) * 100 // facts.total
    return hundredths if 50 <= hundredths < 100 else None


OPTION = Plain(LazyFix("remedies.lifetime-pools", "flag", "--memory-fragmentation"), _apply)
VARIABLE = Plain(LazyFix("remedies.lifetime-pools.variable", "env", "export MEMORY_FRAGMENTATION=1"), _apply)
TURN_OFF = _TurnOff()
HCCL_ROOM = _HcclRoom()
