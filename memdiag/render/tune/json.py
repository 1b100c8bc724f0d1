"""The result of a search for settings, for programs: keys, order and units as in docs/tune.md, ``schema_version`` 1."""

from __future__ import annotations

import json
from typing import Any

from memdiag.render.support.json import as_json, card_dict, outlook_dict
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.outlook import PAST_FAILURE
from memdiag.results.tune import Recommended, Score, Tried, TunedTrace, TuneReport
from memdiag.version import __version__


def render(report: TuneReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers are called alike
    """Returns the report as one JSON object, indented, with a newline at its end. ``look`` is not used."""
    return json.dumps(as_dict(report), indent=2, allow_nan=False) + "\n"


def as_dict(report: TuneReport) -> dict[str, Any]:
    """Returns the report as ``memdiag tune --json`` shows it."""
    best = report.recommended
    shown = {
        "schema_version": report.schema_version,
        "memdiag_version": __version__,
        "traces": [_trace(trace) for trace in report.traces],
        "recorded": _score(report.recorded),
        "baseline": _tried(report.baseline, report.basis),
        "recommended": None if best is None else _recommended(best, report.basis),
        "verdict": report.verdict,
        "error_bytes": report.error_bytes,
        "front": [_tried(tried, report.basis) for tried in report.front],
        "search": {
            "num_settings": report.num_choices,
            "num_cut_short": report.num_cut_short,
            "seconds": round(report.seconds, 3),
            "is_complete": report.is_complete,
        },
    }
    result: dict[str, Any] = as_json(shown)
    return result


def _trace(trace: TunedTrace) -> dict[str, Any]:
    found = trace.calibration
    return {
        "path": trace.path,
        "device": trace.device,
        "torch_version": trace.torch_version,
        "calibration": {
            "events": found.events,
            "exact": found.exact,
            "exact_fraction": found.exact_fraction,
            "what_if_error_bytes": found.what_if_error_bytes,
        },
        "recorded_conf": trace.recorded_conf,
        "recorded_peak_reserved_bytes": trace.recorded_peak_bytes,
        "capacity_bytes": trace.capacity_bytes,
        "num_calls": trace.num_calls,
        "room_bytes": trace.room_bytes,
        "card": card_dict(trace.card),
    }


def _score(score: Score) -> dict[str, Any]:
    return {
        "peak_reserved_bytes": score.peak,
        "peaks_reserved_bytes": list(score.peaks),
        "num_ooms": score.num_ooms,
        "num_retries": score.num_retries,
        "device_allocs": score.device_allocs,
        "device_frees": score.device_frees,
    }


def _tried(tried: Tried, basis: str) -> dict[str, Any]:
    score = tried.score
    fits, rests_on = score.fits(basis)
    return {
        "conf": tried.conf,
        "fits": fits,
        "num_failing_traces": score.num_failing,
        "num_ooms": score.num_ooms,
        "peak_reserved_bytes": score.peak,
        "peaks_reserved_bytes": list(score.peaks),
        "saved_bytes": tried.saved_bytes,
        "num_retries": score.num_retries,
        "device_allocs": score.device_allocs,
        "device_frees": score.device_frees,
        "fits_basis": rests_on,
    }


def _recommended(best: Recommended, basis: str) -> dict[str, Any]:
    return {
        **_tried(best.tried, basis),
        "conf": best.conf,
        "line": best.line,
        "why": [
            {
                "setting": reason.setting,
                "without": {
                    "peak_reserved_bytes": reason.without_peak_bytes,
                    "num_retries": reason.without_retries,
                    "num_driver_calls": reason.without_driver_calls,
                    "fits": None if reason.without_fits and basis == PAST_FAILURE else reason.without_fits,
                },
            }
            for reason in best.reasons
        ],
        "caveats": list(best.caveats),
        "outlooks": [outlook_dict(outlook) for outlook in best.outlooks if outlook.basis == PAST_FAILURE],
    }
