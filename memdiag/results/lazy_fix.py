"""Remedies with lazily loaded texts: dialects name them by key, and only messages with advice need the texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from memdiag.results.finding import Fix
from memdiag.text import Texts, catalogue, phrase, phrase_of


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
        texts: Texts of a module that holds its own; other keys are those of the catalogues.
    """

    key: str
    kind: Literal["env", "flag", "code", "version", "record"]
    change: str = ""
    values: Mapping[str, object] = field(default_factory=dict, compare=False)
    when: str = ""
    caveat: str = ""
    texts: Texts = field(default_factory=dict, compare=False)

    def fix(self) -> Fix:
        """Returns the remedy with its texts, in the active language."""
        when, caveat = (self._part(own, part) for own, part in ((self.when, "when"), (self.caveat, "caveat")))
        return Fix(self._text(self.key), self.kind, self.change, when, caveat)

    def _part(self, own: str, part: str) -> str:
        area, _, name = self.key.partition(".")
        known = self.texts if self.key in self.texts else catalogue(area)
        name = self.key if self.key in self.texts else name
        if not own and f"{name}.{part}" not in known:
            return ""
        return self._text(own or f"{self.key}.{part}")

    def _text(self, key: str) -> str:
        return phrase_of(self.texts, key, **self.values) if key in self.texts else phrase(key, **self.values)
