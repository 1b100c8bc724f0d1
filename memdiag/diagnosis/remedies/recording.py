"""Recording the program, for the facts that a message does not contain."""

from __future__ import annotations

from dataclasses import replace

from memdiag.diagnosis.remedies.model import Situation
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix

_TRACED = frozenset({"cuda", "hip", "npu"})  # backends whose allocator keeps a history


def can_be_recorded(situation: Situation) -> bool:
    """Returns whether ``memdiag record`` can record the program."""
    has_history = situation.has_expandable or situation.backend == "npu"  # torch_npu keeps one in every version
    return situation.on_torch and situation.backend in _TRACED and has_history and not situation.on_windows


class _RecordRun:
    """Records the program, to show which tensors and free blocks fill the memory."""

    key = "remedies.record"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the command that records the program; None on backends that cannot be recorded."""
        module = situation.module
        if not situation.on_torch or situation.backend not in {*_TRACED, "xpu"}:
            return None
        if situation.on_windows and can_be_recorded(replace(situation, on_windows=False)):
            start = f"{module}.memory._record_memory_history(max_entries=1_000_000)  # before the model is made"
            write = f'{module}.memory._dump_snapshot("trace.pkl")'
            then = "  # where the error is caught; then: memdiag analyze trace.pkl"
            return LazyFix(
                "remedies.record", "record", f"{start}\n{write}{then}", when="remedies.record.by-hand.when"
            ).fix()
        if not can_be_recorded(situation):
            return LazyFix("remedies.statistics", "record", f"print({module}.memory_stats())").fix()
        return LazyFix("remedies.record", "record", f"memdiag record -- {situation.started_as}\nmemdiag analyze").fix()


RECORD = _RecordRun()
