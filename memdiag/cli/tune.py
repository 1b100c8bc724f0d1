"""``memdiag tune``: search the allocator settings with which recorded runs need the least memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli import card_options as card
from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.allocator.subject import Subject

_SECONDS, _MIN_SAVING = 60.0, 2.0


def tune(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRACE…",
            help="Trace files, or run directories with all their ranks. Default: the newest run in this directory.",
            show_default=False,
        ),
    ] = None,
    *,
    capacity: card.Capacity = None,
    outside: card.Outside = None,
    budget: Annotated[
        float, typer.Option("--budget-seconds", metavar="N", min=0.0, help="Time limit in seconds for the search.")
    ] = _SECONDS,
    min_saving: Annotated[
        float,
        typer.Option(
            "--min-saving",
            metavar="PERCENT",
            min=0.0,
            max=100.0,
            help="Smallest saving to recommend, in percent of the reserved peak.",
        ),
    ] = _MIN_SAVING,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain tune describes the keys).")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the result to FILE; the ending .json selects JSON.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Find the allocator settings with which a recorded run needs the least memory.

    memdiag replays the run with hundreds of settings. It prints the best
    trade-offs between memory and driver calls, and the export line, with the
    contribution of each setting. Several traces, such as the ranks of a job,
    get one line for all.

    Exit status: 0 success, even if no setting is worth changing; 2 error.
    """
    from memdiag.cli.emit import emit, form_of
    from memdiag.units import parse_bytes

    form = form_of(as_json=as_json, as_md=False, output=output)
    size = parse_bytes(capacity) if capacity is not None else None
    if size is not None and size <= 0:
        raise MemdiagError(phrase("errors.capacity", capacity=str(capacity)), phrase("errors.capacity.hint"))
    subjects = [_subject(path) for path in _files(traces or [])]
    if outside is not None:
        room = parse_bytes(outside)
        subjects = [subject.with_outside(room) for subject in subjects]

    from memdiag.cli.progress import ProgressLine, bar
    from memdiag.runs.tuning import tune as search

    with ProgressLine() as line:

        def searched(done: int, most: int) -> None:
            line(phrase("progress.searching", bar=bar(done / most), count=done, most=most))

        report = search(subjects, capacity=size, seconds=budget, least_share=min_saving / 100, progress=searched)

    from memdiag.render import renderer

    render = renderer("tune", "json" if form == "json" else "terminal")
    emit(lambda look: render(report, look), output)


def _files(given: list[Path]) -> list[Path]:
    """Returns the traces: every rank of a run directory, else the file, or the newest run here."""
    from memdiag.cli.choose import choose_trace

    if not given:
        return [choose_trace(None)]
    files: list[Path] = []
    for path in given:
        ranks = sorted(path.glob("rank*.pkl"), key=lambda file: (len(file.name), file.name)) if path.is_dir() else []
        files += ranks or [choose_trace(path)]
    return files


def _subject(path: Path) -> Subject:
    """Reads a trace and calibrates its device with the most memory.

    Raises:
        MemdiagError: The trace has no requests to replay.
    """
    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import busy

    trace = read_trace(path)
    usable = [device for device in trace.devices if len(device.tensors) and device.num_events]
    if not usable:
        raise MemdiagError(
            phrase("errors.no-allocations", path=str(path)),
            phrase("errors.from-beginning"),
        )
    chosen = max(usable, key=lambda device: device.most_held_bytes)
    with busy(phrase("progress.model", file=str(path))):
        from memdiag.allocator.subject import Subject

        return Subject.of(trace, chosen)
