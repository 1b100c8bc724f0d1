"""Cards that several processes share, in words: the memory of each process at every hand-off and failure, as rows."""

from __future__ import annotations

from memdiag.render.support.words import amount
from memdiag.results.shared_cards import CardProcess, SharedCard, SharedMoment
from memdiag.text import phrase

MOST_ROWS = 12  # of hand-offs: the first and the last ones
_NAME = 32


def head(card: SharedCard) -> list[str]:
    """Returns the titles of the columns: the moment, each process, the rest in use, and free memory."""
    ranks = [phrase("fleet.card.rank", rank=process.rank) for process in card.processes]
    return ["", *ranks, phrase("fleet.card.outside"), phrase("fleet.card.free")]


def rows(card: SharedCard) -> list[list[str]]:
    """Returns a row for each moment of ``moments_of``; the bytes of a row sum to the card."""
    return [[what, *(amount(size) for size in sizes_of(moment))] for what, moment in moments_of(card)]


def moments_of(card: SharedCard) -> list[tuple[str, SharedMoment]]:
    """Returns each hand-off, each failure and the fullest sample in words, with the memory of the card then."""
    at = {moment.at_us: moment for moment in card.moments}
    turns = [(turn.at_us, phrase("fleet.card.turn", rank=turn.to_rank)) for turn in card.hand_offs]
    if len(turns) > MOST_ROWS:
        turns = [*turns[: MOST_ROWS // 2], *turns[-MOST_ROWS // 2 :]]
    failed = [(failure.moment.at_us, phrase("fleet.card.failed", rank=failure.rank)) for failure in card.failures]
    found = [*turns, *failed]
    if card.moments:
        fullest = min(card.moments, key=lambda moment: moment.free_bytes)
        if fullest.free_bytes < min((at[time].free_bytes for time, _ in found), default=card.total_bytes + 1):
            found.append((fullest.at_us, phrase("fleet.card.fullest")))
    begin = card.moments[0].at_us if card.moments else 0
    return [(f"{(time - begin) / 1e6:.1f} s  {what}", at[time]) for time, what in sorted(found)]


def sizes_of(moment: SharedMoment) -> tuple[int, ...]:
    """Returns the bytes of the columns, which sum to the card."""
    return (*moment.reserved_bytes, moment.outside_bytes, moment.free_bytes)


def processes(card: SharedCard) -> list[str]:
    """Returns a line for each process: its rank, its program and its peak."""
    return [_process(process) for process in card.processes]


def _process(process: CardProcess) -> str:
    name = process.name or phrase("fleet.card.unnamed")
    name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"  # a program and its first options
    pid = "" if process.pid is None else str(process.pid)
    return phrase(
        "fleet.card.process", rank=process.rank, name=name, pid=pid, bytes=amount(process.peak_reserved_bytes)
    )


def kept(card: SharedCard) -> list[str]:
    """Returns a line for each process that kept more and more memory when it handed the card over."""
    lines: list[str] = []
    for process in card.processes:
        sizes = [turn.kept_bytes for turn in card.hand_offs if turn.from_rank == process.rank]
        if len(sizes) > 1 and sizes[-1] - sizes[0] >= card.total_bytes // 50:
            facts = {"first": amount(sizes[0]), "last": amount(sizes[-1]), "count": len(sizes)}
            lines.append(phrase("fleet.card.kept", rank=process.rank, **facts))
    return lines
