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
    """One metric held against a budget or the baseline.

    Attributes:
        metric: Its name.
        unit: Of the numbers.
        kind: What it is held against.
        status: "unknown": it cannot be judged.
        value: What it is; None: not known.
        limit: The most that is allowed; None: not known.
        baseline: What it was; None: it is held against a budget.
        allowed: The budget or tolerance in words: "60.00 GiB", "1% more than 58.20 GiB".
        reason: A sentence: what it is, and by how much it is over; or why it cannot be judged.
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
    """A place in the code and what it holds at the peak; ``before`` is what it held in the baseline, None: there is none.

    Attributes:
        label: Short name ("train.py:38 mlp").
        file: The file, as it lies below the working directory; "": it is not there.
        line: Its line; 0: none.
        kind: What its tensors are, in words ("activations").
        bytes, num_tensors: What it holds.
        bytes_before, num_tensors_before: What it held.
        was: Its line in the baseline, if that was another; 0: the same, or none.
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
    """What is said of one device of one trace.

    Attributes:
        key: What it is called in a baseline: "rank0", "trace", "rank0/device1".
        path: The file.
        device: Index of the device; None: the file could not be read.
        error: Why it could not be read; "": it could.
        judgements: In the order of the budgets, then of the baseline.
        holders: Where memory grew, most first; without a baseline who holds it at the peak, or in the only state there is. Empty
            where nothing failed.
        metrics: Everything that is known of it.
        facts: What the trace says of itself.
        has_history: Whether the file tells more than one state, so that there is a peak.
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
        """The worst of its judgements."""
        found = {judgement.status for judgement in self.judgements}
        return "failed" if "failed" in found else "unknown" if "unknown" in found or self.error else "ok"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A whole check.

    Attributes:
        checked: Every trace.
        missing: Keys of the baseline of which no trace was given.
        baseline: Its file; "": none was given.
        changes: With ``--update``: what has changed in the baseline, in words; None: it was not written.
        notes: What else is worth a line: what became better, which settings are not those of the baseline.
    """

    checked: tuple[DeviceCheck, ...]
    missing: tuple[str, ...] = ()
    baseline: str = ""
    changes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)

    @property
    def status(self) -> Status:
        """The worst of all; a trace that is missing cannot be judged."""
        found = {each.status for each in self.checked}
        return "failed" if "failed" in found else "unknown" if "unknown" in found or self.missing else "ok"

    @property
    def verdict(self) -> str:
        """What has come of it, in a sentence."""
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
        """0: all is within its limits, 1: something is not, 2: something could not be judged."""
        return {"ok": DONE, "failed": BUDGET_HIT, "unknown": COULD_NOT}[self.status]
