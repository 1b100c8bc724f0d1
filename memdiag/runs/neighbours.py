"""Finds the other processes of a run on the card on which one of them ran out of memory, and what they held there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.errors import MemdiagError
from memdiag.results.shared_cards import Neighbour
from memdiag.runs.chosen import ranks_in
from memdiag.runs.listener import SILENT, Listener
from memdiag.trace.schema import OOM

if TYPE_CHECKING:
    from memdiag.results.shared_cards import SharedCard
    from memdiag.trace.model import Trace

LARGEST_SHARED, MOST_SHARED = 64 << 20, 16  # bytes and number of traces that are read to find shared cards


def cards_of(traces: Mapping[int, Path], read: Callable[[Path], Trace]) -> tuple[SharedCard, ...]:
    """Returns the cards that several processes used, or none if reading all traces would take long.

    Args:
        traces: The trace of each rank.
        read: Reads a trace.
    """
    from memdiag.runs.cards import shared_cards, uses_of

    if not 1 < len(traces) <= MOST_SHARED or sum(map(_size, traces.values())) > LARGEST_SHARED:
        return ()
    uses = {}
    for rank, path in traces.items():
        try:
            uses[rank] = uses_of(read(path))
        except MemdiagError:
            continue  # the command that reads this trace alone names the reason
    return shared_cards(uses)


def with_neighbours(trace: Trace, rank: int, cards: tuple[SharedCard, ...], traces: Mapping[int, Path]) -> Trace:
    """Returns a trace with the processes that shared its card at its last failure; unchanged if there are none.

    A trace of several devices is unchanged, because neighbours do not name the device.
    """
    found = [(card, failure) for card in cards for failure in card.failures if failure.rank == rank]
    if not found or len(trace.devices) > 1:
        return trace
    card, failure = max(found, key=lambda each: each[1].moment.at_us)
    others = zip(card.processes, failure.moment.reserved_bytes, strict=True)
    return replace(
        trace,
        neighbours=tuple(
            Neighbour(process.rank, held, str(traces[process.rank])) for process, held in others if process.rank != rank
        ),
    )


def with_neighbours_beside(trace: Trace, listener: Listener = SILENT) -> Trace:
    """Returns a trace with its neighbours, from the other traces in the folder of its run.

    It reads them only if this process ran out of memory.
    """
    path = Path(trace.path)
    if trace.recorded is None or not any((device.events.action == OOM).any() for device in trace.devices):
        return trace
    traces = ranks_in(path.parent)
    rank = next((rank for rank, each in traces.items() if each.name == path.name), None)
    if rank is None:
        return trace
    cards = cards_of(traces, lambda each: trace if each.name == path.name else listener.read_trace(each))
    return with_neighbours(trace, rank, cards, traces)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
