"""The report of ``memdiag check``, stable as JSON (docs/check.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memdiag.errors import BUDGET_HIT, COULD_NOT, DONE
from memdiag.text import phrase

Unit = Literal["bytes", "count", "bytes/step", "count/step"]
Number = int | float
Status = Literal["ok", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class MetricJudgement:
    """One metric compared with a budget or the baseline.

    Attributes:
        metric: Name of the metric.
        unit: Unit of the numbers: "bytes", "count", "bytes/step" or "count/step".
        kind: Whether the metric is compared with a budget or with the baseline.
        status: "ok", "failed", or "unknown" if the trace lacks the data.
        value: The measured value; null: unknown.
        limit: The largest allowed value; null: unknown.
        baseline: The value in the baseline; null if the metric is compared with a budget.
        allowed: The budget or tolerance in words: "60.00 GiB", "1% more than 58.20 GiB".
        reason: The result in a sentence, or why the metric is unknown.
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
class CheckedSite:
    """A call site and the memory that it holds at the peak.

    Attributes:
        label: Short name ("train.py:38 mlp").
        file: The file, relative to the working directory; null if it is outside that directory.
        line: Line of the call site; null: unknown.
        kind: Category of the tensors in words ("activations").
        bytes: Live bytes of its tensors.
        num_tensors: Number of its live tensors.
        baseline_bytes: Live bytes in the baseline; null: there is no baseline.
        baseline_num_tensors: Live tensors in the baseline; null: there is no baseline.
        baseline_line: The line in the baseline, if it was another one; null: the same, or unknown.
    """

    label: str
    file: str
    line: int
    kind: str
    bytes: int
    num_tensors: int
    baseline_bytes: int | None = None
    baseline_num_tensors: int | None = None
    baseline_line: int = 0


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """One device of one trace.

    Attributes:
        key: Name of the trace in a baseline: "rank0", "trace", "rank0/device1".
        path: The trace file.
        device: Index of the device; null: the file could not be read.
        error: Why the file could not be read or compared; null: no error.
        checks: Results, in the order of the budgets, then of the baseline.
        sites: If a check failed: the call sites that grew most; without a baseline, those that hold most memory.
        metrics: Every metric; null: unknown.
        facts: Facts about the recording (backend, version, …).
        has_history: Whether the file has more than one state, so that there is a peak.
    """

    key: str
    path: str
    device: int | None
    error: str = ""
    checks: tuple[MetricJudgement, ...] = ()
    sites: tuple[CheckedSite, ...] = ()
    metrics: dict[str, Number | None] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    has_history: bool = True

    @property
    def status(self) -> Status:
        """The worst result of its checks."""
        found = {judgement.status for judgement in self.checks}
        return "failed" if "failed" in found else "unknown" if "unknown" in found or self.error else "ok"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Traces checked against budgets and a baseline.

    Attributes:
        traces: One entry for each device of each trace.
        missing: Keys of the baseline for which no trace was given.
        baseline: File of the baseline; null: none was given.
        changes: With ``--update``: changes of the baseline in words; null: the baseline was not written.
        notes: Metrics that became better, and facts that differ from the baseline.
    """

    traces: tuple[DeviceCheck, ...]
    missing: tuple[str, ...] = ()
    baseline: str = ""
    changes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """The worst result of all traces; a missing trace is "unknown"."""
        found = {each.status for each in self.traces}
        return "failed" if "failed" in found else "unknown" if "unknown" in found or self.missing else "ok"

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        all_of = [(each, judgement) for each in self.traces for judgement in each.checks]
        failed = [item for item in all_of if item[1].status == "failed"]
        passed = sum(judgement.status == "ok" for _, judgement in all_of)
        unknown = sum(judgement.status == "unknown" for _, judgement in all_of) + len(self.missing)
        unknown += sum(bool(each.error) for each in self.traces)
        if failed:
            each, judgement = failed[0]
            reason = (
                phrase("check.note", key=each.key, text=judgement.reason) if len(self.traces) > 1 else judgement.reason
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
        """Exit status: 0 all checks passed, 1 a check failed, 2 a metric or trace is unknown."""
        return {"ok": DONE, "failed": BUDGET_HIT, "unknown": COULD_NOT}[self.status]
