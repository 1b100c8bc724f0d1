"""Findings: the unit of every diagnosis, stable as JSON.

A finding names a problem, its size, the call site that causes it, and remedies with their caveats. Every number in its
texts comes from its evidence. Savings are never added up, because two remedies may remove the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
Basis = Literal["measured", "simulated", "estimated"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number or text that a finding rests on.

    Attributes:
        what: Name of the number ("stranded at the peak").
        value: The number or text; null: unknown.
        unit: "bytes", "events", "tensors", "us", "ratio", "bytes/step", …; "" for text.
        where: A line of code ("train.py:35 forward"), an event ("event 1,204") or a pool; "" if none.
    """

    what: str
    value: int | float | str | None
    unit: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """One remedy.

    Attributes:
        title: The remedy, an imperative sentence.
        kind: Kind of change: "env" (environment variable), "flag", "code", "version" or "record" (record again with
            other options).
        change: The line to paste; "" if it depends on the program.
        applicability: When the remedy helps ("torch >= 2.1", "CUDA and NPU").
        caveat: What the remedy may cost, or when it does not help.
    """

    title: str
    kind: Literal["env", "flag", "code", "version", "record"]
    change: str = ""
    applicability: str = ""
    caveat: str = ""


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes that a remedy saves at the reserved peak.

    Attributes:
        low_bytes, high_bytes: Lower and upper end of the range of the saving.
        expected_bytes: Most likely saving.
        basis: How the saving is known: "measured", "simulated" or "estimated".
        repro: Command that shows the saving; "" if none.
    """

    low_bytes: int
    expected_bytes: int
    high_bytes: int
    basis: Basis
    repro: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, its evidence and its remedies.

    Attributes:
        code: Stable code ("MD201"); each code has a page in docs/findings.
        title: The problem in a few words.
        severity: "critical", "warning" or "info".
        device: Index of the device; null: all devices, or none in particular.
        evidence: The numbers that the finding rests on.
        fixes: Remedies, the best first.
        saving: What the remedy saves; null: unknown. Savings of several findings must not be added up.
        weight_bytes: Bytes that the problem is about, for sorting within a severity.
    """

    code: str
    title: str
    severity: Severity
    device: int | None = None
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    saving: Saving | None = None
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """Something about the input that limits the diagnosis.

    Attributes:
        code: Stable code (MD9xx); each code has a page in docs/findings.
        text: The limit in a sentence.
    """

    code: str
    text: str
