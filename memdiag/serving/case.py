"""The facts of a failed start from which an engine computes the flags that fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memdiag.results.finding import Fix
from memdiag.results.serving import ServingCard
from memdiag.serving.engines import ServerFacts
from memdiag.serving.rules import LogValues
from memdiag.text import phrase
from memdiag.units import format_bytes


@dataclass(frozen=True)
class FailedStart:
    """A failed start.

    Attributes:
        dialect: Form of the message.
        fields: The numbers of the message, as in ``memdiag.results.oom.Message``.
        text: The message.
        card: The account of the card that failed; None if the log has none.
        values: The values of that card.
        server: The values of the server.
        facts: Capacity for requests, and settings.
        total_bytes: Size of the card; None: unknown.
    """

    dialect: str
    fields: Mapping[str, object]
    text: str
    card: ServingCard | None
    values: LogValues
    server: LogValues
    facts: ServerFacts
    total_bytes: int | None

    def field(self, name: str) -> int | None:
        """Returns a whole number of the message, or None."""
        value = self.fields.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def missing_bytes(self) -> int | None:
        """Memory that the failed allocation lacked; None: unknown."""
        requested, free = self.field("requested_bytes"), self.field("free_bytes")
        return None if requested is None or free is None else max(requested - free, 0)


def flag(key: str, change: str, **values: object) -> Fix:
    """Returns a remedy of ``messages/serving.json``: ``key`` is the instruction and ``key.why`` the arithmetic."""
    return Fix(phrase(f"serving.{key}", **values), "flag", change, caveat=phrase(f"serving.{key}.why", **values))


def shown(size: int | None) -> str:
    """Returns a size for a sentence."""
    return format_bytes(size)
