"""Who held the memory of a card over time: the allocator, the rest of its process, other processes, free memory."""

from __future__ import annotations

from dataclasses import replace

from memdiag import vocabulary
from memdiag.analyzers.support.ledger import ledger_of
from memdiag.errors import MemdiagError
from memdiag.results.card_ledger import CardMoment
from memdiag.results.plots import CardPlot
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.views.plot_frame import Ask, frame_of

PARTS: tuple[str, ...] = tuple(vocabulary.STYLES["card"])  # from the bottom up; free memory is the rest


def card_of(trace: Trace, device: DeviceTrace, ask: Ask) -> CardPlot:
    """Returns the memory of the card of a device at the samples of the recording.

    Raises:
        MemdiagError: The file has no samples of the card.
    """
    moments = ledger_of(device, max(ask.columns, 2))
    if not moments:
        raise MemdiagError(phrase("plots.no-samples", path=trace.path), phrase("plots.no-samples.hint"))
    fullest = min(moments, key=lambda moment: moment.free_bytes)
    notes = [phrase("plots.note.samples", count=len(moments))]
    if any(moment.own_outside_bytes is None for moment in moments):
        notes.append(phrase("plots.note.unknown-parts"))
    unmapped = max(moment.unmapped_bytes for moment in moments)
    if unmapped:
        notes.append(phrase("plots.note.unmapped"))
    frame = frame_of(trace, device, max(ask.columns, 1), notes)
    begin = moments[0].at_us
    return CardPlot(
        frame=replace(frame, bands=(), steps=(), retries=(), ooms=()),  # they are events, and this axis is time
        total_bytes=fullest.total_bytes,
        at_ms=tuple((moment.at_us - begin) // 1000 for moment in moments),
        parts={name: sizes for name in PARTS if any(sizes := tuple(part_of(moment, name) or 0 for moment in moments))},
        free=tuple(moment.free_bytes for moment in moments),
        fullest_ms=(fullest.at_us - begin) // 1000,
        at_fullest={**{name: part_of(fullest, name) or 0 for name in PARTS}, "free": fullest.free_bytes},
        failures_ms=tuple((moment.at_us - begin) // 1000 for moment in moments if moment.when == "oom"),
    )


def part_of(moment: CardMoment, name: str) -> int | None:
    """Returns the bytes of a part of the card at a moment, or None if it is not known separately."""
    size: int | None = getattr(moment, f"{name}_bytes")
    return size
