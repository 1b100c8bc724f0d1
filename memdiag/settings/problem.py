"""Something wrong with one setting, before it becomes a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memdiag.results.finding import Severity


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a key or its value.

    Attributes:
        code: Code of the finding.
        title: The problem in a few words.
        severity: "critical" where the program is refused at its first allocation.
        why: What the allocator does instead, or what it would take.
        right: The value to write; None: leave the key out.
    """

    code: str
    title: str
    severity: Severity
    why: str
    right: str | None


@dataclass(frozen=True, slots=True)
class Clash:
    """Something wrong between settings, or between a setting and what the program uses.

    Attributes:
        code: Code of the finding.
        title: The problem in a few words.
        severity: "critical" where the program fails.
        why: What happens.
        keys: The settings it is about.
        changes: What to write instead: key to value, None to leave it out.
        fix: The remedy, in an imperative sentence; "": none.
    """

    code: str
    title: str
    severity: Severity
    why: str
    keys: tuple[str, ...]
    changes: Mapping[str, str | None] = field(default_factory=dict)
    fix: str = ""
