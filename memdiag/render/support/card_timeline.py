"""Who had the memory of a card over time, in words: moments with their parts and a bar, which sum to the card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memdiag import vocabulary
from memdiag.render.support.bar import stacked_bar
from memdiag.results.card_ledger import CardMoment
from memdiag.text import phrase
from memdiag.units import format_bytes

MOST_ROWS = 10
_BAR = 12  # columns
_FREE = "·"
PARTS = (*vocabulary.STYLES["card"], "free")
GLYPHS = (*(style.glyph for style in vocabulary.STYLES["card"].values()), _FREE)


@dataclass(frozen=True)
class CardRows:
    """The texts of a table.

    Attributes:
        lead: The meaning of the bars, and what is unknown.
        head: Titles of its columns: parts of the card first, the moment last.
        rows: Texts of its cells.
    """

    lead: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def card_rows(moments: Sequence[CardMoment]) -> CardRows | None:
    """Returns the table of a card's memory over time, or None without samples; parts that are always 0 are omitted."""
    if not moments:
        return None
    shown = [moments[number] for number in _chosen(moments)]
    used = [at for at, part in enumerate(PARTS) if any(getattr(moment, f"{part}_bytes") for moment in shown)]
    legend = "  ".join(f"{GLYPHS[at]} {name_of(PARTS[at])}" for at in used)
    is_known = all(moment.own_outside_bytes is not None for moment in shown)
    lead: str = phrase("report.card-time.lead", total=format_bytes(shown[-1].total_bytes), legend=legend)
    if not is_known:
        lead = f"{lead} {phrase('report.card-time.unknown-parts')}"
    names = (f"{GLYPHS[at]} {phrase(f'report.card-time.{PARTS[at]}.short')}" for at in used)
    head = (*names, phrase("report.card-time.when"))
    return CardRows(lead, head, tuple(_row(moment, used, moments[0].at_us) for moment in shown))


def name_of(part: str) -> str:
    """Returns the name of a part of the card, or of free memory."""
    free: str = phrase("report.card-time.free")
    return free if part == "free" else vocabulary.name("card", part)


def _row(moment: CardMoment, used: Sequence[int], begin: int) -> tuple[str, ...]:
    sizes = [getattr(moment, f"{part}_bytes") or 0 for part in PARTS]
    bar = stacked_bar([(glyph, "", size) for glyph, size in zip(GLYPHS, sizes, strict=True)], _BAR).plain
    when = phrase(f"report.card-time.when.{moment.when}", step=moment.step)
    return (*(format_bytes(sizes[at]) for at in used), f"{bar} {(moment.at_us - begin) / 1e6:.1f} s {when}")


def _chosen(moments: Sequence[CardMoment]) -> list[int]:
    """Returns first and last moment, failures, and the fullest and emptiest moment of each part of the run."""
    if len(moments) <= MOST_ROWS:
        return list(range(len(moments)))
    failures = [number for number, moment in enumerate(moments) if moment.when == "oom"][-2:]
    parts = (MOST_ROWS - 2 - len(failures)) // 2
    bounds = [len(moments) * part // parts for part in range(parts + 1)]
    found = {0, len(moments) - 1, *failures}
    for low, high in pairwise(bounds):
        by_free = sorted(range(low, high), key=lambda number: moments[number].free_bytes)
        found |= {by_free[0], by_free[-1]}
    return sorted(found)
