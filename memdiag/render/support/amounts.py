"""One amount of memory with its name, and shares as percentages."""

from __future__ import annotations

from typing import NamedTuple


class AmountRow(NamedTuple):
    """One amount of memory with its name.

    ``share`` is its fraction of the whole (None: unknown), ``style`` a colour.
    """

    name: str
    bytes: int | None
    share: float | None
    meaning: str = ""
    glyph: str = "█"
    style: str = ""


def percent(share: float | None) -> str:
    """Returns ``84.8%``; ``<0.1%`` for a small non-zero value; "" for None."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
