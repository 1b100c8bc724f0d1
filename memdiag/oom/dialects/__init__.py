"""Dialects: the out-of-memory messages of one system each.

A dialect is a module with

* ``FORMATS``: names of the message forms it finds (``dialect`` in the JSON);
* ``ANCHORS``: short texts, in lower case and without spaces; each of its messages contains at least one, and other text
  is skipped;
* ``EXAMPLES``: pairs of a form and an example message, for tests and documentation;
* ``find(text)``: yields the messages in a squeezed text, as ``memdiag.oom.model.Found``;

and, if it needs them,

* ``NAMES``: names of its frameworks for people, by ``Found.framework``; ``memdiag.oom.frameworks`` has those that
  several dialects use;
* ``WORDS``: words that its messages contain instead of those of ``memdiag.oom.gate.WORDS``;
* texts in English and Chinese: a separate catalogue (``memdiag/messages/oom_x.json``, with ``phrase`` and
  ``LazyFix``), or ``TEXTS`` in the module itself (with ``phrase_of`` and ``LazyFix(…, texts=TEXTS)``).

The table of ``memdiag.oom.anchors`` names all dialects. Its order matters for overlapping matches: the longer one
wins, then the first dialect of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from memdiag.oom.anchors import ANCHORS
from memdiag.registry import Registry


class Dialect(Protocol):
    """The messages of one system; the module docstring describes the attributes."""

    FORMATS: Sequence[str]
    ANCHORS: Sequence[str]
    EXAMPLES: Sequence[tuple[str, str]]

    def find(self, text: Any) -> Iterable[Any]:
        """Yields each ``Found`` in a ``Squeezed`` text."""


DIALECTS: Registry[Dialect] = Registry(
    "dialect",
    Dialect,
    {name: f"{__name__}.{name.replace('-', '_')}" for name in ANCHORS},
    "memdiag.dialects",
)


def names_of(dialect: Dialect) -> Mapping[str, str]:
    """Returns the names of a dialect's own frameworks."""
    return getattr(dialect, "NAMES", {})


def words_of(dialect: Dialect) -> tuple[str, ...]:
    """Returns the words by which a dialect's messages are found in a long text, besides those of all dialects."""
    return tuple(getattr(dialect, "WORDS", ()))


def dialects() -> list[Dialect]:
    """Returns the modules of all dialects."""
    return list(DIALECTS.values())
