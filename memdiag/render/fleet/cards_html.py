"""Cards that several processes share, on the page of a fleet: a row with a bar for each hand-off and failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from memdiag.render.support import shared_cards
from memdiag.render.support.pages import Markup, Section, stacked, swatch, table, tag
from memdiag.text import phrase, plain
from memdiag.units import format_bytes
from memdiag.vocabulary import GREY, LINES

if TYPE_CHECKING:
    from memdiag.results.fleet import FleetReport
    from memdiag.results.shared_cards import SharedCard

_MOST_CARDS = 64
_FREE = "var(--line)"  # a colour of the page, since nobody uses this memory


def card_sections(report: FleetReport) -> Iterator[Section]:
    """Yields a section for each card: its processes, who held what, and what they kept."""
    for number, card in enumerate(report.cards[:_MOST_CARDS]):
        title = phrase("fleet.title.card", card=plain(card.card, 60))
        yield Section(f"card{number}", title, list(_parts(card)))


def _parts(card: SharedCard) -> Iterator[Markup]:
    heads, colors = shared_cards.head(card), _colors(card)
    yield tag("p", phrase("fleet.card.total", bytes=format_bytes(card.total_bytes)), class_="lead")
    yield tag("ul", *(tag("li", line) for line in shared_cards.processes(card)), class_="notes")
    if moments := shared_cards.moments_of(card):
        legend = [tag("span", swatch(color), name) for name, color in zip(heads[1:], colors, strict=True)]
        yield tag("div", *legend, class_="legend")
        rows = []
        for what, moment in moments:
            sizes = shared_cards.sizes_of(moment)
            bar = [
                (phrase("fleet.fact", name=name, value=format_bytes(size)), color, size)
                for name, color, size in zip(heads[1:], colors, sizes, strict=True)
            ]
            rows.append((what, *(format_bytes(size) for size in sizes), stacked(bar, card.total_bytes)))
        yield table((*heads, ""), rows, range(1, len(heads)))
    for line in shared_cards.kept(card):
        yield tag("p", line)
    if card.num_skipped:
        yield tag("p", phrase("fleet.card.skipped", count=card.num_skipped), class_="under")


def _colors(card: SharedCard) -> list[str]:
    """Returns the colours of the processes, of other memory in use, and of free memory."""
    return [*(LINES[number % len(LINES)] for number in range(len(card.processes))), GREY, _FREE]
