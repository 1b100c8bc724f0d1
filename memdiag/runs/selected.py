"""``memdiag record --selected 0..1``: the peak at both ends of sizes that depend on data.

A mask, ``nonzero`` or ``unique`` of values that no kernel computed has a size that memdiag assumes: a fraction of the
largest possible one. A range of fractions runs the command at its upper end first, which is the recorded run. If it
assumed a size, the command runs again at the lower end, with its output in a file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memdiag.errors import MemdiagError
from memdiag.phantom.launch import SELECTED
from memdiag.runs.find_max import peaks_of, talking_to
from memdiag.runs.listener import SILENT, Listener
from memdiag.runs.recording import Done, Order, perform
from memdiag.text import phrase
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.recorder.launch import ProgramEnd
    from memdiag.runs.finishing import FinishedRun

OUTPUT, RESULT = "selected-output.txt", "selected.json"


@dataclass(frozen=True)
class Fractions:
    """The fraction of elements that masks select: one, or the ends of a range."""

    low: float
    high: float

    @property
    def is_range(self) -> bool:
        """Whether the ends differ."""
        return self.low < self.high


def read_fractions(text: str) -> Fractions:
    """Reads a fraction from 0 to 1, or a range LOW..HIGH of them.

    Raises:
        MemdiagError: It is neither.
    """
    low, is_range, high = text.partition("..")
    try:
        found = Fractions(float(low), float(high if is_range else low))
    except ValueError:
        found = Fractions(1, 0)
    if not 0 <= found.low <= found.high <= 1:
        raise MemdiagError(phrase("errors.selected", text=text), phrase("errors.selected.hint"))
    return found


def perform_selected(
    order: Order,
    fractions: Fractions,
    listener: Listener = SILENT,
    then: Callable[[FinishedRun, ProgramEnd, str], None] | None = None,
) -> Done:
    """Runs a command at the upper end of a range of fractions, then at the lower end, and reports both peaks.

    Args:
        order: The command.
        fractions: The range.
        listener: Receives progress and the peaks.
        then: As for ``perform``, for the run at the upper end.

    Returns:
        The run at the upper end. The peaks of both are in selected.json in its folder.

    Raises:
        MemdiagError: The command cannot be started, or the run cannot be written.
    """
    done = perform(_at(order, fractions.high), listener, then)
    sizes = [process.get("assumed_sizes") or {} for process in done.run.processes] if done.run is not None else []
    count = sum(facts.get("count") or 0 for facts in sizes)
    if done.ended.signals:
        return done
    if not count:
        listener.say(f"memdiag: {phrase('record.selected.none')}")
        return done
    folder = Path(done.folder.path)
    inside, output = folder / f"selected={fractions.low:g}", folder / OUTPUT
    lower = replace(_at(order, fractions.low), output=str(inside), has_short_name=False)
    with listener.busy(f"memdiag: {phrase('record.selected.busy', low=f'{fractions.low:g}')}"), talking_to(output):
        again = perform(lower, listener)
    ends = [_end(fractions.low, again, listener), _end(fractions.high, done, listener)]
    shutil.rmtree(inside, ignore_errors=True)
    _report(ends, count, next((facts["last"] for facts in sizes if facts.get("last")), ""), output, listener)
    _write(folder, ends)
    return done


def _at(order: Order, fraction: float) -> Order:
    return replace(order, environment={**order.environment, SELECTED: f"{fraction:g}"})


def _end(fraction: float, done: Done, listener: Listener) -> dict[str, Any]:
    recorded = done.run.recorded if done.run is not None else ()
    reserved, allocated, _ = peaks_of([status["trace"] for status in recorded], listener)
    return {
        "fraction": fraction,
        "exit_status": done.ended.exit_code,
        "peak_reserved_bytes": reserved,
        "peak_allocated_bytes": allocated,
    }


def _report(ends: list[dict[str, Any]], count: int, place: str, output: Path, listener: Listener) -> None:
    from memdiag.recorder.run_folder import shown

    facts = {
        f"{end}_{key}": format_bytes(found[f"peak_{key}_bytes"])
        for end, found in zip(("low", "high"), ends, strict=True)
        for key in ("reserved", "allocated")
    }
    low, high = (f"{end['fraction']:g}" for end in ends)
    listener.say(f"memdiag: {phrase('record.selected.ends', count=count, place=place, low=low, high=high, **facts)}")
    if ends[0]["exit_status"]:
        said = phrase("record.selected.failed", low=low, status=str(ends[0]["exit_status"]), file=shown(str(output)))
        listener.say(f"memdiag: {said}")
    else:
        output.unlink(missing_ok=True)


def _write(folder: Path, ends: list[dict[str, Any]]) -> None:
    from memdiag.recorder.files import write_json

    write_json(str(folder / RESULT), {"ends": ends})
