"""The keys of the JSON report, their order and their types are as documented in docs/json.md."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memdiag.render.analyze.json import as_dict, render
from memdiag.results.finding import Evidence

USAGE = ["reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes"]
PEAK = [*USAGE, "at_event", "at_us", "phase", "step"]


def test_keys_in_order(samples):
    shown = json.loads(render(samples.rich()))
    assert list(shown) == [
        "schema_version",
        "memdiag_version",
        "verdict",
        "source",
        "devices",
        "settings",
        "findings",
        "what_if",
        "notes",
        "host",
    ]
    assert list(shown["verdict"]) == [
        *(
            "severity",
            "summary",
            "device",
            "lost_bytes",
            "loss",
            "remedy",
            "command",
            "code",
            "peak_reserved_bytes",
            "predicted_peak_reserved_bytes",
        ),
        *("fits", "prediction", "calibration", "fits_basis", "assumed"),
    ]
    assert shown["schema_version"] == 2
    assert list(shown["source"]) == [
        *(
            "path",
            "format",
            "backend",
            "torch_version",
            "is_phantom",
            "num_events",
            "num_tensors",
            "complete_from_start",
            "bases",
        )
    ]
    device = shown["devices"][0]
    assert list(device) == [
        *("device", "end", "peak", "peak_allocated", "fragmentation", "counts"),
        *("by_category", "by_lifetime", "top_sites", "by_module", "card", "card_timeline"),
        *("moment", "by_label", "by_compiled_region"),
    ]
    assert list(device["end"]) == USAGE
    assert list(device["peak"]) == PEAK
    assert list(device["peak_allocated"]) == PEAK
    assert list(device["fragmentation"]) == [
        *("at_event", "reference_request_bytes", "reference_kind", "rounding_bytes", "pending_bytes"),
        *("stranded_bytes", "foreign_bytes", "cache_bytes", "largest_free_bytes"),
    ]
    assert list(device["counts"]) == ["num_segments_allocated", "num_segments_freed", "num_retries", "num_ooms"]
    assert list(device["top_sites"][0]) == ["bytes", "num_tensors", "stack", "name", "tensor_names"]
    assert list(device["by_module"][0]) == ["name", "bytes", "fraction", "num_tensors"]
    assert shown["source"]["bases"] == {"phase": "marks", "step": "marks", "category": "marks", "lifetime": "marks"}
    assert list(shown["what_if"][0]) == [
        *(
            "device",
            "change",
            "codes",
            "is_combination",
            "peak_reserved_bytes",
            "saved_bytes",
            "calibration_error_bytes",
            "num_ooms",
        ),
        *(
            "num_recorded_ooms",
            "calibration",
            "repro",
            "num_retries",
            "num_driver_calls",
            "rejection_reason",
            "starts_with_live_tensors",
            "is_rest_too_large",
        ),
    ]
    finding = shown["findings"][0]
    assert list(finding) == ["code", "title", "severity", "device", "evidence", "fixes", "saving"]
    assert list(finding["evidence"][0]) == ["what", "value", "unit", "where"]
    assert list(finding["fixes"][0]) == ["title", "kind", "change", "applicability", "caveat"]
    assert list(finding["saving"]) == ["low_bytes", "expected_bytes", "high_bytes", "basis", "repro"]
    assert list(shown["notes"][0]) == ["code", "text"]


def test_findings_are_sorted(samples):
    assert [f["code"] for f in json.loads(render(samples.rich()))["findings"]] == ["MD201", "MD401", "MD301"]


def test_unknown_is_null(samples):
    device = json.loads(render(samples.unknown()))["devices"][0]
    for part in ("end", "peak", "peak_allocated", "fragmentation", "counts"):
        assert set(device[part].values()) == {None}
    assert device["by_category"] is None
    assert device["top_sites"] is None
    assert device["by_module"] is None


def test_bytes_are_integers(samples):
    device = json.loads(render(samples.rich()))["devices"][0]
    assert all(type(device["end"][key]) is int for key in USAGE)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), None),
        (float("inf"), None),
        (np.int64(7), 7),
        (np.float64(0.5), 0.5),
        (True, True),
        (2**63, 2**63),
        ("\ud800", "�"),
    ],
)
def test_odd_values_give_valid_json(samples, value, shown):
    finding = replace(samples.FINDINGS[0], evidence=(Evidence("what", value),))
    read = json.loads(render(replace(samples.rich(), findings=(finding,))), parse_constant=pytest.fail)
    assert read["findings"][0]["evidence"][0]["value"] == shown


def test_settings_of_any_shape(samples):
    deep: object = 1
    for _ in range(100_000):  # deeper than any Python version can convert to text
        deep = [deep]
    settings = {"nested": {1: (1, 2)}, "raw": b"\xff", "set": frozenset({3}), "deep": deep, "huge": 10**5000}
    read = json.loads(render(replace(samples.rich(), settings={**settings, "deep": [[1]], "huge": 2**70})))["settings"]
    assert read == {"nested": {"1": [1, 2]}, "raw": "b'\\xff'", "set": [3], "deep": [[1]], "huge": 2**70}
    read = json.loads(render(replace(samples.rich(), settings=settings)))["settings"]
    assert read["huge"] == "(int, too large to show)"
    assert "too large to show" in str(read["deep"])


def test_it_is_ascii_even_with_hostile_names(samples):
    shown = render(samples.hostile())
    assert all(char == "\n" or " " <= char <= "~" for char in shown)
    assert json.loads(shown)["source"]["path"] == samples.HOSTILE.replace("\ud800", "�")


def test_the_documentation_names_every_key(samples):
    text = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")

    def keys(value):
        if isinstance(value, dict):
            for key, item in value.items():
                yield key
                yield from keys(item)
        elif isinstance(value, list):
            for item in value:
                yield from keys(item)

    shown = as_dict(replace(samples.rich(), settings={}))
    for device in shown["devices"]:
        device["by_category"] = device["by_lifetime"] = None
    assert {key for key in keys(shown) if f'"{key}"' not in text and f"`{key}`" not in text} == set()
