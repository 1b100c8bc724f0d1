"""Remedies with lazily loaded texts: dialects name them by key, and only messages with advice need the texts."""

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
        key: Key of the instruction. ``key.when`` and ``key.caveat`` are its condition and its cost, if they exist.
        kind: As in ``Fix``.
        change: As in ``Fix``.
        values: Values of the placeholders in its texts.
        when: Key of its condition, if it is not ``key.when``.
        caveat: Key of its cost, if it is not ``key.caveat``.
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
