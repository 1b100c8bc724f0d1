"""The report for programs.

Byte counts are integers, unknown values are null, and the text is ASCII JSON, which survives any pipe.
"""

from __future__ import annotations

from typing import Any, TypedDict

from memdiag.render.support.card import verdict_of
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import ABSENT, JsonLayout, Shape, ShapeKey
from memdiag.render.support.shapes import CARD, FINDING, MOMENTS
from memdiag.render.support.words import in_order
from memdiag.results.finding import Finding
from memdiag.results.libraries import LibraryMemory
from memdiag.results.report import DeviceReport, Report, Verdict
from memdiag.results.would_fit import WouldFit


class Counts(TypedDict):
    """Numbers of driver calls and failures in the whole trace.

    Attributes:
        num_segments_allocated: Segments (or pages of expandable segments) reserved, or None if unknown.
        num_segments_freed: Segments (or pages of expandable segments) released, or None if unknown.
        num_retries: Requests for which all cached memory was released first, or None if unknown.
        num_ooms: Requests that failed, or None if unknown.
    """

    num_segments_allocated: int | None
    num_segments_freed: int | None
    num_retries: int | None
    num_ooms: int | None


_DEVICE = Shape(
    DeviceReport,
    (
        "device",
        "end",
        "peak",
        "peak_allocated",
        "fragmentation",
        ShapeKey(
            "counts",
            lambda device: {name: device.counts.get(name) for name in Counts.__annotations__},
            Counts,
            "Numbers of driver calls and failures in the whole trace.",
        ),
        "by_category",
        "by_lifetime",
        "top_sites",
        "by_module",
        "card",
        "card_timeline",
        "moment",
        "by_label",
        "by_compiled_region",
    ),
)

LAYOUT = JsonLayout(
    name="analyze",
    title="memdiag analyze --json",
    meaning="The diagnosis of one trace.",
    version=2,
    root=Report,
    shapes=(
        Shape(
            Report,
            (
                ShapeKey("verdict", verdict_of, Verdict, "The summary with which every form of the report starts."),
                "source",
                "devices",
                "settings",
                ShapeKey(
                    "findings",
                    lambda report: in_order(report.findings),
                    list[Finding],
                    "Findings, ordered by severity and then by the bytes that they are about.",
                ),
                "what_if",
                "notes",
                "host",
                ShapeKey(
                    "libraries",
                    lambda report: report.libraries or ABSENT,
                    list[LibraryMemory],
                    "Memory that communication libraries hold outside the allocator; only with a log of a library.",
                    is_optional=True,
                ),
                ShapeKey(
                    "would_fit",
                    lambda report: report.would_fit or ABSENT,
                    list[WouldFit],
                    "Whether a tensor would fit, for each device; only with --would-fit.",
                    is_optional=True,
                ),
            ),
        ),
        _DEVICE,
        *MOMENTS,
        CARD,
        FINDING,
    ),
)


def render(report: Report, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return LAYOUT.text(report)


def as_dict(report: Report) -> dict[str, Any]:
    """Returns the report as ``memdiag analyze --json`` shows it: dicts, lists, str, int, float, bool and None only."""
    return LAYOUT.as_dict(report)
