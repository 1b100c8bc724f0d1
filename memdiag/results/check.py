"""The report of ``memdiag check``, stable as JSON (docs/check.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memdiag.errors import BUDGET_HIT, COULD_NOT, DONE
from memdiag.text import phrase

SCHEMA_VERSION = 1

Unit = Literal["bytes", "count", "bytes/step", "count/step"]
Number = int | float
Status = Literal["ok", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class MetricJudgement:
    """One metric compared with a budget or the baseline.

    Attributes:
        metric: Its name.
        unit: Unit of the numbers.
        kind: Whether the limit is a budget or comes from the baseline.
        status: "ok", "failed", or "unknown" if it cannot be judged.
        value: Measured value, or None if unknown.
        limit: Highest allowed value, or None if unknown.
        baseline: Value in the baseline, or None if the metric is compared with a budget.
        allowed: The budget or tolerance in words: "60.00 GiB", "1% more than 58.20 GiB".
        reason: One sentence: the value and how far it exceeds the limit, or why it cannot be judged.
    """

    metric: str
    unit: Unit
    kind: Literal["budget", "baseline"]
    status: Status
    value: Number | None
    limit: Number | None
    baseline: Number | None
    allowed: str
    reason: str


@dataclass(frozen=True, slots=True)
class Holder:
    """A call site and the memory it holds at the peak, now and in the baseline.

    Attributes:
        label: Short name ("train.py:38 mlp").
        file: The file relative to the working directory, or "" if it is not below it.
        line: Line number, or 0 if there is none.
        kind: Category of its tensors, in words ("activations").
        bytes, num_tensors: Memory it holds.
        bytes_before, num_tensors_before: Memory it held in the baseline, or None if the baseline does not have it.
        was: Its line in the baseline if that differs, otherwise 0.
    """

    label: str
    file: str
    line: int
    kind: str
    bytes: int
    num_tensors: int
    bytes_before: int | None = None
    num_tensors_before: int | None = None
    was: int = 0


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """The result for one device of one trace.

    Attributes:
        key: Its key in a baseline: "rank0", "trace", "rank0/device1".
        path: The file.
        device: Device index, or None if the file could not be read.
        error: Why the file could not be read, or "" if it could.
        judgements: In the order of the budgets, then of the baseline.
        holders: The call sites where memory grew, largest first. Without a baseline, the call sites that hold memory at
            the peak, or in the only recorded state. Empty if no metric failed.
        metrics: All known metrics.
        facts: Facts that the trace states about itself.
        has_history: Whether the file records more than one state, so that there is a peak.
    """

    key: str
    path: str
    device: int | None
    error: str = ""
    judgements: tuple[MetricJudgement, ...] = ()
    holders: tuple[Holder, ...] = ()
    metrics: dict[str, Number | None] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    has_history: bool = True

    @property
    def status(self) -> Status:
        """The worst status of its judgements."""
        found = {judgement.status for judgement in self.judgements}
        return "failed" if "failed" in found else "unknown" if "unknown" in found or self.error else "ok"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of ``memdiag check``.

    Attributes:
        checked: Every trace.
        missing: Keys of the baseline for which no trace was given.
        baseline: The baseline file, or "" if none was given.
        changes: With ``--update``, the changes to the baseline, in words; None if it was not written.
        notes: Other remarks: metrics that improved, settings that differ from the baseline.
    """

    checked: tuple[DeviceCheck, ...]
    missing: tuple[str, ...] = ()
    baseline: str = ""
    changes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)

    @property
    def status(self) -> Status:
        """The worst status of all; a missing trace cannot be judged."""
        found = {each.status for each in self.checked}
        return "failed" if "failed" in found else "unknown" if "unknown" in found or self.missing else "ok"

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        all_of = [(each, judgement) for each in self.checked for judgement in each.judgements]
        failed = [item for item in all_of if item[1].status == "failed"]
        passed = sum(judgement.status == "ok" for _, judgement in all_of)
        unknown = sum(judgement.status == "unknown" for _, judgement in all_of) + len(self.missing)
        unknown += sum(bool(each.error) for each in self.checked)
        if failed:
            each, judgement = failed[0]
            reason = (
                phrase("check.note", key=each.key, text=judgement.reason) if len(self.checked) > 1 else judgement.reason
            )
            return (
                phrase("check.failed.more", reason=reason, count=len(failed) - 1)
                if len(failed) > 1
                else phrase("check.failed", reason=reason)
            )
        if unknown:
            return phrase("check.unjudged", unknown=unknown, passed=passed)
        if self.changes is not None and not passed:
            return phrase("check.baseline")
        return phrase("check.passed.all" if passed > 1 else "check.passed", count=passed)

    @property
    def exit_code(self) -> int:
        """0 if everything is within its limits, 1 if something is not, 2 if something could not be judged."""
        return {"ok": DONE, "failed": BUDGET_HIT, "unknown": COULD_NOT}[self.status]
