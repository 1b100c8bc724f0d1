"""Simulated runs for programs: keys, order and units as in docs/simulate.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from memdiag.render.support.json import as_json, card_dict, moment_dict, outlook_dict
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.prediction import CalibrationReport, Prediction, PredictionReport
from memdiag.results.report import ReportMoment
from memdiag.version import __version__


def render(report: PredictionReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return json.dumps(as_dict(report), indent=2, allow_nan=False) + "\n"


def as_dict(report: PredictionReport) -> dict[str, Any]:
    """Returns the report as ``memdiag simulate --json`` shows it."""
    shown = {
        "schema_version": 2,
        "memdiag_version": __version__,
        "path": report.path,
        "device": report.device,
        "calibration": _calibration(report.calibration),
        "recorded": {**asdict(report.recorded), "moment": _moment(report.recorded.moment)},
        "results": [_result(result, with_min_capacity=report.with_min_capacity) for result in report.results],
        "card": card_dict(report.card),
    }
    if report.advice is not None:
        shown["advice"] = asdict(report.advice)
    result: dict[str, Any] = as_json(shown)
    return result


def _calibration(found: CalibrationReport) -> dict[str, Any]:
    first = found.first_divergence
    return {
        "num_events": found.num_events,
        "num_exact": found.num_exact,
        "exact_fraction": found.exact_fraction,
        "first_divergence": None if first is None else asdict(first),
        "calibration_error_bytes": found.calibration_error_bytes,
        "notes": list(found.notes),
    }


def _moment(moment: ReportMoment | None) -> dict[str, Any] | None:
    return None if moment is None else moment_dict(moment)


def _result(result: Prediction, *, with_min_capacity: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "policy": result.policy,
        "conf": result.conf,
        "torch_version": result.torch_version,
        "capacity_bytes": result.capacity_bytes,
        "peak_reserved_bytes": result.peak_reserved_bytes,
        "peak_allocated_bytes": result.peak_allocated_bytes,
        "peak_requested_bytes": result.peak_requested_bytes,
        "num_retries": result.num_retries,
        "num_ooms": result.num_ooms,
        "first_oom": None if result.first_oom is None else asdict(result.first_oom),
        "fits": result.fits,
        "num_device_allocs": result.device_allocs,
        "num_device_frees": result.device_frees,
        "fragmentation": asdict(result.fragmentation),
        "saved_bytes": result.saved_bytes,
        "num_release_cycles": result.num_cycles,
        "device_allocs_per_step": result.mallocs_per_step,
        "num_undefined": result.num_undefined,
        "fits_basis": None if result.outlook is None else result.outlook.basis,
        "room_bytes": result.room_bytes,
        "moment": _moment(result.moment),
    }
    if result.outlook is not None and result.fits is None:
        shown["outlook"] = outlook_dict(result.outlook)
    shown |= {detail.key: asdict(detail) for detail in result.details}
    if result.standing == "uncalibrated":
        shown["is_calibrated"] = False
    if with_min_capacity:
        shown["min_capacity_bytes"] = result.min_capacity_bytes
        shown["min_room_bytes"] = result.min_room_bytes
    return shown
