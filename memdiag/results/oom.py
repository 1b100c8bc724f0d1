"""The report of ``memdiag oom``: out-of-memory messages, their causes and their accounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memdiag.results.finding import Finding

SCHEMA_VERSION = 1


Cause = Literal["fragmentation", "capacity", "other_process", "limit", "workspace_or_comm", "host", "unknown"]


CAUSES: tuple[Cause, ...] = (
    "fragmentation",
    "capacity",
    "other_process",
    "limit",
    "workspace_or_comm",
    "host",
    "unknown",
)


Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What caused the failure.

    Attributes:
        verdict: The most probable cause.
        confidence: "high" where the numbers leave no other cause, "low" where the message alone cannot decide.
        alternatives: Runners-up, the more probable first; never ``verdict`` itself.
        reasons: The arithmetic, a sentence each, with the numbers in it; the decisive one first.
        rule: Rule of ``diagnosis.classifier`` that decided; "" if the message itself or its surroundings did.
    """

    verdict: Cause
    confidence: Confidence
    alternatives: tuple[Cause, ...] = ()
    reasons: tuple[str, ...] = ()
    rule: str = ""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line of the account of a device's memory.

    Attributes:
        what: "total", or a part of it in words ("allocated by PyTorch", "reserved but unallocated", "context and libraries of
            this process", "process 4711", "free", "unknown").
        bytes: Its size; None if unknown.
        owner: "this process", "other processes", "free", "unknown", or "total" for the sum.
        basis: "printed", "computed" (from printed numbers) or "inferred" (with an assumption, which ``what`` names).
    """

    what: str
    bytes: int | None
    owner: Literal["this process", "other processes", "free", "unknown", "total"]
    basis: Literal["printed", "computed", "inferred"]


@dataclass(frozen=True, slots=True)
class Message:
    """One out-of-memory message, or several of a rank that are the same (``count``).

    ``moment`` holds the options with which ``memdiag analyze`` looks at this failure in the trace; "" if no trace
    contains it.
    """

    dialect: str
    framework: str
    backend: str
    rank: int | None
    count: int
    line: int
    text: str
    fields: Mapping[str, object]
    judgement: Judgement
    ledger: tuple[LedgerEntry, ...]
    findings: tuple[Finding, ...]
    source: str = ""
    is_warning: bool = False
    moment: str = ""


@dataclass(frozen=True, slots=True)
class OomReport:
    """All messages of a report, in the order in which they were printed.

    Attributes:
        messages: All failures; warnings only if there is no failure.
        sources: Names of the files read; "text" for text, "-" for standard input.
        num_lines: Lines read.
        num_bytes: Bytes read.
        num_warnings_left_out: Warnings ("not a failure") beside real failures.
        first_rank: The rank with the first message; None if unknown.
        trace: The trace that explains the messages; "" if there was none.
        num_left_out: Messages beyond the first 20,000 that differ, which are only counted.
    """

    messages: tuple[Message, ...]
    sources: tuple[str, ...] = ()
    num_lines: int = 0
    num_bytes: int = 0
    num_warnings_left_out: int = 0
    first_rank: int | None = None
    num_left_out: int = 0
    trace: str = ""
    schema_version: int = SCHEMA_VERSION
