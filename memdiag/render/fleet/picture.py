"""A heat map of many ranks as an image: one row per rank, bytes by step, with marks for failures and outliers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.units import GIB, KIB, MIB, TIB, plural
from memdiag.vocabulary import FAILURE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from memdiag.results.fleet import FleetReport, HeatMap

_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT = 9.0, 3.2, 10.0  # inches
_A_RANK = 0.06
_COLOURS = "cividis"  # an even scale of lightness for everybody, also in print
_MOST_TICKS = 24


def render(report: FleetReport, file: Path) -> None:
    """Writes the heat map of a report to a file, in the format of its suffix.

    Raises:
        OSError: It cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heat = report.heatmap
    assert heat is not None  # noqa: S101 - the command asks before
    height = min(max(_A_RANK * len(heat.ranks) + 1.6, _LEAST_HEIGHT), _MOST_HEIGHT)
    figure = Figure(figsize=(_WIDTH, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    highest = max((value for row in heat.rows for value in row if value is not None), default=0)
    unit, name = next(
        ((size, word) for size, word in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")) if highest >= size),
        (1, "bytes"),
    )
    cells = [[float("nan") if value is None else value / unit for value in row] for row in heat.rows]
    image = axes.imshow(cells, aspect="auto", interpolation="nearest", cmap=_COLOURS)
    figure.colorbar(image, ax=axes, label=f"highest {heat.curve} memory ({name})", pad=0.02)
    axes.set_xlabel("step" if heat.axis == "step" else "part of the trace")
    axes.set_ylabel("rank")
    _ticks(axes, heat)
    _marks(axes, report, heat)
    axes.set_title(f"Peak {heat.curve} memory of {plural(len(heat.ranks), 'rank')}", loc="left", fontsize=11)
    figure.savefig(file, format=file.suffix[1:].lower(), metadata=_without_date(file))


def _without_date(file: Path) -> dict[str, None]:
    """Removes the date, so that the same report gives the same file."""
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(file.suffix.lower(), {})


def _ticks(axes: Axes, heat: HeatMap) -> None:
    every = -(-len(heat.ranks) // _MOST_TICKS)
    rows = range(0, len(heat.ranks), every)
    axes.set_yticks(list(rows), [str(heat.ranks[row]) for row in rows], fontsize=7)
    every = -(-len(heat.columns) // _MOST_TICKS)
    columns = range(0, len(heat.columns), every)
    axes.set_xticks(
        list(columns),
        [heat.columns[column] for column in columns],
        fontsize=7,
        rotation=45 if len(heat.columns) > 12 else 0,
    )


def _marks(axes: Axes, report: FleetReport, heat: HeatMap) -> None:
    """Marks ranks: a cross if one ran out of memory, a triangle at the right edge of outliers."""
    failed = {row.rank for row in report.ranks if row.is_out_of_memory}
    odd = {rank for each in report.outliers if each.delta_bytes > 0 for rank in each.ranks}
    ends = [
        max((column for column, value in enumerate(row) if value is not None), default=0) + 0.5 for row in heat.rows
    ]
    edge = len(heat.columns) - 0.5
    for ranks, marker, colour, label in (
        (odd, "<", "#222222", "outlier (more memory)"),
        (failed, "x", FAILURE, "ran out of memory"),
    ):
        rows = [row for row, rank in enumerate(heat.ranks) if rank in ranks]
        if rows:
            at = [edge if marker == "<" else ends[row] for row in rows]
            axes.scatter(at, rows, marker=marker, color=colour, s=22, clip_on=False, zorder=5, label=label)
    if failed or odd:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=7, frameon=False, borderaxespad=0.2)
