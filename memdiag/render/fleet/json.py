"""Many ranks for programs."""

from __future__ import annotations

from typing import Any, TypedDict

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape, ShapeKey
from memdiag.render.tune import json as tune_json
from memdiag.results.fleet import FleetReport, HeatMap, Rank, Tuned
from memdiag.results.tune import TuneReport


class LastFailureJson(TypedDict):
    """The last request that failed on a rank.

    Attributes:
        requested_bytes: Size of the request.
        at_event: Event of the failure.
        step: Training step, or None if unknown.
        phase: Phase of the step, or None if unknown.
        allocated_bytes: Allocated bytes then, or None if unknown.
        reserved_bytes: Reserved bytes then, or None if unknown.
        device_free_bytes: Free memory of the device according to the driver, or None if unknown.
    """

    requested_bytes: int
    at_event: int
    step: int | None
    phase: str | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    device_free_bytes: int | None


class HeatRowJson(TypedDict):
    """One rank of a heat map.

    Attributes:
        rank: Number of the rank.
        bytes: Highest bytes in each column, or None if the rank has no data there.
    """

    rank: int
    bytes: list[int | None]


def _last_failure(row: Rank) -> dict[str, Any] | None:
    """Returns the declared facts only: those of a worker are an untyped dict."""
    known = row.last_failure
    return None if known is None else {name: known.get(name) for name in LastFailureJson.__annotations__}


def _rows(heat: HeatMap) -> list[dict[str, Any]]:
    return [{"rank": rank, "bytes": row} for rank, row in zip(heat.ranks, heat.rows, strict=True)]


_REPORT = Shape(
    FleetReport,
    (
        "verdict",
        ShapeKey("num_ranks", lambda report: len(report.ranks), int, "Number of ranks that could be read."),
        ShapeKey(
            "num_out_of_memory",
            lambda report: sum(row.is_out_of_memory for row in report.ranks),
            int,
            "Number of ranks on which a request failed.",
        ),
        "world_size",
        "backends",
        "is_phantom",
        "ranks",
        "groups",
        "outliers",
        "distribution",
        "findings",
        "heatmap",
        "cards",
        "unreadable",
        "notes",
        "tuned",
    ),
)
_RANK = Shape(
    Rank,
    (
        "rank",
        "file",
        "group",
        "device",
        "capacity_bytes",
        "peak_reserved_bytes",
        "peak_allocated_bytes",
        "headroom_bytes",
        "is_out_of_memory",
        ShapeKey("last_failure", _last_failure, LastFailureJson | None, "The last failed request; null: none failed."),
        "num_retries",
        "step",
        "phase",
        "unused_bytes",
        "num_events",
        "conf",
        "torch_version",
        "headline",
        "by_category",
    ),
)

LAYOUT = JsonLayout(
    name="fleet",
    title="memdiag fleet --json",
    meaning="The ranks of one job.",
    version=2,
    root=FleetReport,
    shapes=(
        _REPORT,
        _RANK,
        Shape(
            HeatMap,
            ("curve", "axis", "columns", ShapeKey("rows", _rows, list[HeatRowJson], "One row of bytes for each rank.")),
        ),
        Shape(
            Tuned,
            (
                ShapeKey(
                    "searched_on_ranks", lambda tuned: tuned.ranks, list[int], "Ranks on which settings were searched."
                ),
                ShapeKey("search", lambda tuned: tuned.report, TuneReport, "The search, as in memdiag tune --json."),
                "checked",
            ),
        ),
        *tune_json.LAYOUT.shapes,
    ),
    indent=1,
)


# All renderers have the same signature.
def render(report: FleetReport, look: Look = PLAIN, top: int = 10) -> str:  # noqa: ARG001
    """Returns the report as one JSON object, indented, with a newline at its end.

    ``look`` and ``top`` are not used: the output contains everything.
    """
    return LAYOUT.text(report)


def as_dict(report: FleetReport) -> dict[str, Any]:
    """Returns the report as ``memdiag fleet --json`` shows it."""
    return LAYOUT.as_dict(report)
