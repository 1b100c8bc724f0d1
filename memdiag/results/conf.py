"""The report of ``memdiag conf``: an allocator settings string, explained and judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.results.finding import SCHEMA_VERSION, Finding


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the settings string, explained.

    Attributes:
        key: The key, or the key that was probably meant.
        value: The value as written, or "" if there is none.
        meaning: Effect of the key, or "" for an unknown key.
        default: Behaviour without it.
        range: Allowed values.
        since: First version that supports it ("2.6"), or None if unknown.
    """

    key: str
    value: str
    meaning: str
    default: str
    range: str
    since: str | None


@dataclass(frozen=True, slots=True)
class ConfReport:
    """The report of ``memdiag conf``.

    Attributes:
        backend: Backend that the settings belong to.
        torch_version: The requested version, or None for the newest known.
        checked_version: The version whose rules were applied.
        variable: The environment variable that they belong in.
        text: The settings as written, or None if the variable is not set.
        settings: Each key, in order.
        findings: Findings, worst first.
        corrected: The text to use instead ("" if the variable should not be set), or None if the text is correct.
        line: The same as a line to paste, or "" if there is none.
        related: Other variables that are set and affect memory (name, value, effect).
    """

    backend: str
    torch_version: str | None
    checked_version: str
    variable: str
    text: str | None
    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...]
    corrected: str | None
    line: str
    related: tuple[tuple[str, str, str], ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)
