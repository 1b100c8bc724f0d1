"""A problem with one setting, before it becomes a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memdiag.results.finding import Severity


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a key or its value.

    Attributes:
        code: Code of the finding.
        title: The problem in a few words.
        severity: "critical" if the program fails at its first allocation.
        why: The allocator's actual behaviour, or the values that it accepts.
        right: The value to write, or None to remove the key.
    """

    code: str
    title: str
    severity: Severity
    why: str
    right: str | None


@dataclass(frozen=True, slots=True)
class Clash:
    """A problem with a combination of settings, or of a setting with a program feature.

    Attributes:
        code: Code of the finding.
        title: The problem in a few words.
        severity: "critical" if the program fails.
        why: The consequence.
        keys: The settings concerned.
        changes: Corrections by key: the new value, or None to remove the key.
        fix: The remedy in an imperative sentence, or "" if there is none.
    """

    code: str
    title: str
    severity: Severity
    why: str
    keys: tuple[str, ...]
    changes: Mapping[str, str | None] = field(default_factory=dict)
    fix: str = ""
