"""The split of reserved memory in the table of simulated runs, at the moment of each run."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag import vocabulary
from memdiag.render.support.page import Cell
from memdiag.results.prediction import Prediction, RecordedRun
from memdiag.results.report import ReportMoment
from memdiag.text import Phrase, phrase
from memdiag.units import format_bytes

Run = RecordedRun | Prediction
_PARTS = tuple(part for part in vocabulary.STYLES["part"] if part != "requested")
_NOTHING = "-"


def split_rows(runs: Sequence[Run]) -> list[list[Cell]]:
    """Returns the rows of the split with a column per run: the moment, its reserved bytes, and their parts."""
    if all(run.moment is None for run in runs):
        return []
    moments = [run.moment for run in runs]
    rows: list[list[Cell]] = [[phrase("simulate.row.split"), *map(_name, moments)]]
    if any(run.moment is not None and run.moment.reserved_bytes != run.peak_reserved_bytes for run in runs):
        rows.append(
            [
                _part_row(vocabulary.name("curve", "reserved")),
                *(_bytes(None if each is None else each.reserved_bytes) for each in moments),
            ]
        )
    requested = [None if each is None else each.requested_bytes for each in moments]
    rows.append([_part_row(vocabulary.name("part", "requested")), *map(_bytes, requested)])
    rows += [
        [_part_row(vocabulary.name("part", part)), *(_bytes(_size(run, part)) for run in runs)] for part in _shown(runs)
    ]
    return rows


def split_meanings(runs: Sequence[Run]) -> list[Phrase]:
    """Returns an explanation of each part that has a row."""
    parts = _shown(runs) if any(run.moment is not None for run in runs) else []
    return [
        phrase("simulate.means.part", name=vocabulary.name("part", part), means=vocabulary.meaning("part", part))
        for part in parts
    ]


def _shown(runs: Sequence[Run]) -> list[str]:
    return [part for part in _PARTS if any(_size(run, part) for run in runs)]


def _part_row(name: str) -> Phrase:
    return phrase("simulate.row.part", name=name)


def _name(moment: ReportMoment | None) -> str:
    if moment is None:
        return _NOTHING
    if moment.kind == "event" and moment.at_event is not None:
        return phrase("places.event", at=moment.at_event)
    return vocabulary.title(moment.kind)


def _size(run: Run, part: str) -> int | None:
    size: int | None = getattr(run.fragmentation, f"{part}_bytes")
    return size


def _bytes(value: int | None) -> str:
    return _NOTHING if value is None else format_bytes(value)
