"""The report of ``memdiag conf``: one text of allocator settings, explained and judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.results.finding import SCHEMA_VERSION, Finding


@dataclass(frozen=True, slots=True)
class Setting:
    """One key as it stands in the text, explained.

    Attributes:
        key: The key that it is, or that was probably meant.
        value: The value as written; "" where there is none.
        meaning: What the key does; "" for a key that nobody knows.
        default: What holds without it.
        range: Allowed values.
        since: First version that knows it ("2.6"); None: unknown.
    """

    key: str
    value: str
    meaning: str
    default: str
    range: str
    since: str | None


@dataclass(frozen=True, slots=True)
class ConfReport:
    """The whole of it.

    Attributes:
        backend: Whose settings they are.
        torch_version: The version that was asked about; None: the newest known.
        checked_version: The version whose rules were applied.
        variable: The environment variable that they belong in.
        text: The settings as written; None: the variable is not set.
        settings: Each key, in order.
        findings: The worst first.
        corrected: The text to use instead ("": the variable should not be set); None: the text is right as it is.
        line: The same as a line to paste; "" where there is none.
        related: Other variables that are set and say something about memory (name, value, what it does).
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
