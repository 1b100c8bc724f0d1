"""Findings: the unit of every diagnosis, stable as JSON.

A finding names a problem, its size, where in the code it arises, and remedies with their caveats. Every number shown
comes from
its evidence. Savings are never added up: two remedies may remove the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1


Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
Basis = Literal["measured", "simulated", "estimated"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number and its source.

    Attributes:
        what: Label of the number, in words ("stranded at the peak").
        value: The number, or None if the source cannot provide it.
        unit: "bytes", "events", "tensors", "us", "ratio", "bytes/step", …; "" for plain text in ``value``.
        where: A line of the user's code ("train.py:35 forward"), an event ("event 1,204") or a pool; "" if none.
    """

    what: str
    value: int | float | str | None
    unit: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """One remedy.

    Attributes:
        title: The remedy in an imperative sentence.
        kind: "env" (an environment variable), "flag", "code", "version" or "record" (record again, differently).
        change: The exact line to paste, or "" if it has to be worked out.
        applicability: When it helps ("torch >= 2.1", "CUDA and NPU").
        caveat: Its cost, or when it does not help.
    """

    title: str
    kind: Literal["env", "flag", "code", "version", "record"]
    change: str = ""
    applicability: str = ""
    caveat: str = ""


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes that a remedy would free at the reserved peak, as a range, with its basis and how to verify it."""

    low_bytes: int
    expected_bytes: int
    high_bytes: int
    basis: Basis
    repro: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem. ``code`` ("MD201") is stable and has a page in docs/findings/."""

    code: str
    title: str
    severity: Severity
    device: int | None = None
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    saving: Saving | None = None
    weight_bytes: int = 0  # for sorting within a severity: number of bytes concerned


@dataclass(frozen=True, slots=True)
class Note:
    """A property of the input that limits the diagnosis (codes MD9xx)."""

    code: str
    text: str
