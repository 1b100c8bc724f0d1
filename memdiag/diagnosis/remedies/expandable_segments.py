"""Expandable segments: enable them, upgrade to a version that has them, and check that they are in effect."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis.remedies.model import Situation
from memdiag.results.finding import Fix
from memdiag.results.lazy_fix import LazyFix
from memdiag.settings.exclusions import EXCLUDED_BY_EXPANDABLE
from memdiag.text import phrase

# Libraries with a copy of PyTorch's allocator, whose first release with expandable segments is unknown here.
_OTHERS = {"musa": "torch_musa", "mlu": "torch_mlu"}


class _Enable:
    """Enables expandable segments, in which adjacent free blocks merge."""

    key = "remedies.expandable"
    is_likely = True

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the setting; None if it is on, if MindSpeed's pools exclude it, or if this version has none."""
        if (
            situation.has_lifetime_pools
            or not situation.can_be_set
            or not situation.has_expandable
            or situation.on_windows
            or situation.is_expandable
        ):
            return None
        title, line = phrase("remedies.expandable"), situation.line({"expandable_segments": "True"})
        if situation.backend == "npu":
            dropped = ", ".join(key for key in EXCLUDED_BY_EXPANDABLE if key in situation.settings)
            caveat = (
                phrase("remedies.expandable.npu.dropped", keys=dropped)
                if dropped
                else phrase("remedies.expandable.npu.caveat")
            )
            return Fix(title, "env", line, phrase("remedies.expandable.npu.when"), caveat)
        when = (
            phrase("remedies.expandable.hip.when")
            if situation.backend == "hip"
            else phrase("remedies.expandable.other.when", library=_OTHERS[situation.backend])
            if situation.backend in _OTHERS
            else phrase("remedies.expandable.cuda.when")
        )
        return Fix(title, "env", line, when, phrase("remedies.expandable.cuda.caveat"))

    def variants(self, situation: Situation) -> Iterator[Fix]:
        """Yields the setting."""
        fix = self.offer(situation)
        if fix is not None:
            yield fix


class _Upgrade:
    """Upgrades PyTorch from a version without expandable segments."""

    key = "remedies.upgrade.cuda"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the upgrade; None if the version has expandable segments."""
        if situation.has_expandable or not situation.variable or situation.on_windows:
            return None
        line = situation.line({"expandable_segments": "True"})
        if situation.backend == "npu":
            upgrade = f"pip install --upgrade torch torch_npu\n{line}"
            return LazyFix("remedies.upgrade.npu", "version", upgrade).fix()
        if situation.backend == "hip":
            return LazyFix("remedies.upgrade.hip", "version", line).fix()
        return LazyFix("remedies.upgrade.cuda", "version", f'pip install --upgrade "torch>=2.1"\n{line}').fix()


class _Check:
    """Checks whether expandable segments are in effect: a failure despite free blocks suggests that they are not."""

    key = "remedies.in-force"

    def offer(self, situation: Situation) -> Fix | None:
        """Returns the line that shows whether they are in effect; None if they are not set."""
        if not situation.is_expandable or situation.on_windows:
            return None
        module = situation.module
        snapshot = f'print({{segment.get("is_expandable") for segment in {module}.memory_snapshot()}})'
        return LazyFix("remedies.in-force", "code", snapshot if module else "").fix()


ENABLE = _Enable()
UPGRADE = _Upgrade()
CHECK = _Check()
