"""The result of ``memdiag fit`` as a table of comma-separated values: one row for each configuration and device."""

from __future__ import annotations

import csv
import io

from memdiag.render.support.look import PLAIN, Look
from memdiag.results.fit import FitReport

_COLUMNS = (
    "device",
    "outcome",
    "basis",
    "peak_allocated_bytes",
    "peak_reserved_bytes",
    "headroom_bytes",
    "unknown_bytes",
    "rank",
    "smallest_total_bytes",
    "setting",
    "setting_headroom_bytes",
    "decided_by",
    "trace",
)


def render(report: FitReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all forms have the same signature
    """Returns the report as CSV; unknown values are empty."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    rows.writerow([*(axis.name for axis in report.axes), *_COLUMNS, "error"])
    for cell in report.cells:
        for on in cell.on:
            values = [getattr(on, name) for name in _COLUMNS]
            rows.writerow([*cell.values, *("" if value is None else value for value in values), cell.error])
    return written.getvalue()
