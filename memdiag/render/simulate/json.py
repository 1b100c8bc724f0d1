"""Simulated runs for programs."""

from __future__ import annotations

from typing import Any

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import ABSENT, JsonLayout, Shape, ShapeKey
from memdiag.render.support.shapes import CARD, FINDING, MOMENTS, OUTLOOK, REST
from memdiag.results.finding import Finding
from memdiag.results.outlook import Outlook
from memdiag.results.prediction import CalibrationReport, Prediction, PredictionReport


def _details(result: Prediction) -> dict[str, Any]:
    """Returns what only some policies have to show."""
    return {detail.key: detail for detail in result.details}


_RESULT = Shape(
    Prediction,
    (
        "policy",
        "conf",
        "torch_version",
        "capacity_bytes",
        "peak_reserved_bytes",
        "peak_allocated_bytes",
        "peak_requested_bytes",
        "num_retries",
        "num_ooms",
        "first_oom",
        "fits",
        "num_device_allocs",
        "num_device_frees",
        "fragmentation",
        "saved_bytes",
        "num_release_cycles",
        "device_allocs_per_step",
        "num_calls_past_assertion",
        ShapeKey(
            "fits_basis",
            lambda result: None if result.outlook is None else result.outlook.basis,
            str | None,
            "Basis of `fits`: replay, past_failure, recorded_part or whole_run; null: not computed.",
        ),
        "usable_bytes",
        "moment",
        ShapeKey(
            "is_calibrated",
            lambda result: result.standing != "uncalibrated",
            bool,
            "Whether the model of this allocator was compared with an implementation of it.",
        ),
        "min_capacity_bytes",
        "min_usable_bytes",
        ShapeKey(
            "outlook",
            lambda result: result.outlook if result.outlook is not None and result.fits is None else ABSENT,
            Outlook,
            "Known facts about the run after the recorded failure; only if `fits` is null.",
            is_optional=True,
        ),
    ),
    more=_details,
)

LAYOUT = JsonLayout(
    name="simulate",
    title="memdiag simulate --json",
    meaning="A recorded run, simulated with other allocators and settings.",
    version=2,
    root=PredictionReport,
    shapes=(
        Shape(
            PredictionReport,
            (
                "path",
                "device",
                "calibration",
                "recorded",
                "results",
                "card",
                ShapeKey(
                    "advice",
                    lambda report: report.advice or ABSENT,
                    Finding,
                    "Effect of lifetime-segregated pools (MD114); only if they were simulated.",
                    is_optional=True,
                ),
            ),
        ),
        Shape(
            CalibrationReport,
            ("num_events", "num_exact", "exact_fraction", "first_divergence", "calibration_error_bytes", "notes"),
        ),
        _RESULT,
        *MOMENTS,
        CARD,
        FINDING,
        OUTLOOK,
        REST,
    ),
)


def render(report: PredictionReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return LAYOUT.text(report)


def as_dict(report: PredictionReport) -> dict[str, Any]:
    """Returns the report as ``memdiag simulate --json`` shows it."""
    return LAYOUT.as_dict(report)
