"""Remedies whose texts are looked up late: dialects name them by key, and only the messages that are advised on need the texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from memdiag.results.finding import Fix
from memdiag.text import catalogue, phrase


@dataclass(frozen=True, slots=True)
class LazyFix:
    """A remedy whose texts are phrases.

    Attributes:
        key: Of the sentence that says what to do. ``key.when`` and ``key.caveat`` hold its condition and its cost,
            where there are any.
        kind: As of ``Fix``.
        change: As of ``Fix``.
        values: What the blanks in its texts stand for.
        when: Key of its condition, if that is another one than ``key.when``.
        caveat: Key of its cost, if that is another one than ``key.caveat``.
    """

    key: str
    kind: Literal["env", "flag", "code", "version", "record"]
    change: str = ""
    values: Mapping[str, object] = field(default_factory=dict, compare=False)
    when: str = ""
    caveat: str = ""

    def fix(self) -> Fix:
        """Returns the remedy with its texts, in the active language."""
        when, caveat = (self._text(own, part) for own, part in ((self.when, "when"), (self.caveat, "caveat")))
        return Fix(phrase(self.key, **self.values), self.kind, self.change, when, caveat)

    def _text(self, own: str, part: str) -> str:
        area, _, name = self.key.partition(".")
        if not own and f"{name}.{part}" not in catalogue(area):
            return ""
        key = own or f"{self.key}.{part}"
        return phrase(key, **self.values)
