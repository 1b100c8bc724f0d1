"""The table of ``memdiag simulate``: what is unknown, what differs, many runs, narrow places."""

from __future__ import annotations

import json

import pytest

from memdiag.allocator.prediction import CalibrationReport, FirstDivergence, FirstOom, Prediction, PredictionReport, RecordedRun
from memdiag.findings import Fragmentation
from memdiag.render import simulate, simulate_json
from memdiag.render.look import Look
from memdiag.units import GIB, MIB

SPLIT = Fragmentation(12, 30 * MIB, "this request", 1000, 0, 8 * MIB, 4 * MIB, 60 * MIB, 5 * MIB)
NO_SPLIT = Fragmentation(None, None, None, None, None, None, None, None, None)
EXACT = CalibrationReport(248, 248, 1.0, None, 0, 209, 209, "2.13")
INEXACT = CalibrationReport(
    100_000, 99_999, 0.99999, FirstDivergence(7, "address", "512 bytes into a segment", "in a new segment", "unknown slack"), 2 * MIB, 9, 8,
    "2.6", ("nothing was refused",),
)  # fmt: skip
UNCALIBRATED = CalibrationReport(50, None, None, None, None)


def prediction(policy="caching", conf="", **values) -> Prediction:
    known = {
        "policy": policy, "conf": conf, "torch_version": "2.13", "capacity_bytes": GIB, "peak_reserved_bytes": 500 * MIB,
        "peak_allocated_bytes": 400 * MIB, "peak_requested_bytes": 390 * MIB, "num_retries": 1, "num_ooms": 0, "first_oom": None,
        "fits": True, "device_allocs": 40, "device_frees": 3, "fragmentation": SPLIT, "saved_bytes": 24 * MIB,
    }  # fmt: skip
    return Prediction(**{**known, **values})


def report(*results, calibration=EXACT, recorded=None, **values) -> PredictionReport:
    run = recorded or RecordedRun(524 * MIB, 400 * MIB, 2, 1, 50, None, SPLIT, "caching", "")
    return PredictionReport(
        "trace.pkl", 0, 1000, calibration, run, results, values.pop("capacity_bytes", GIB), is_capacity_known=False, **values
    )


def shown(given: PredictionReport, width=80, *, unicode=True) -> str:
    return simulate.render(given, Look(width=width, unicode=unicode))


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return line.strip()[len(name) :].split()


def test_exact_and_beside_the_recorded_run():
    text = shown(report(prediction(is_recorded=True), prediction("expandable", saved_bytes=-3 * MIB)))
    assert text.startswith("CALIBRATED  exact: the recorded settings, simulated, give 248 of 248 recorded")
    assert row(text, "peak reserved") == ["524.00", "MiB", "500.00", "MiB", "500.00", "MiB"]
    assert row(text, "saved") == ["24.00", "MiB", "3.00", "MiB", "more"]
    assert "give or take" not in text
    assert row(text, "runs") == ["out", "of", "memory", "yes", "yes"]
    assert "1.00 GiB at most" in text


def test_a_model_that_is_not_exact_never_says_100_percent():
    text = shown(report(prediction(error_bytes=2 * MIB), calibration=INEXACT))
    assert "99.99 %" in text
    assert "100" not in text.splitlines()[0].replace("100,000", "")
    assert "First difference at event 7" in text
    assert "Probable cause: unknown slack." in text
    assert row(text, "give or take") == ["2.00", "MiB"]
    assert "Nothing was refused." in text


def test_what_is_not_known_is_a_dash():
    nothing = RecordedRun(None, 5, None, None, None, None, NO_SPLIT, "caching", None)
    text = shown(report(prediction(saved_bytes=None), calibration=UNCALIBRATED, recorded=nothing, capacity_bytes=None))
    assert text.startswith("NOT CALIBRATED")
    assert row(text, "saved") == ["-"]
    assert row(text, "runs") == ["-", "yes"]
    assert "settings not known" in text


def test_a_failure_says_what_was_asked_for_and_what_it_lacked():
    first = FirstOom(1204, 512 * MIB, "layers.3.mlp (gelu)", "train.py:35 forward", 900 * MIB, 800 * MIB, GIB, 388 * MIB, 3 * MIB)
    text = " ".join(shown(report(prediction(first_oom=first, num_ooms=3, fits=False))).split())
    assert "A runs out of memory at event 1,204: 512.00 MiB are asked for (layers.3.mlp (gelu) · train.py:35 forward) while" in text
    assert "while 900.00 MiB are held of 1.00 GiB; the driver has 388.00 MiB too little, and the largest free block has 3.00 MiB." in text
    assert "After it, 2 more requests would fail." in text


def test_the_smallest_card_has_a_row_if_asked_for():
    assert "smallest card" not in shown(report(prediction()))
    text = shown(report(prediction(min_capacity_bytes=256 * MIB), prediction(min_capacity_bytes=None), with_min_capacity=True))
    assert row(text, "smallest card") == ["256.00", "MiB", "-"]


def test_what_the_peak_consists_of_is_labelled_as_such():
    lines = shown(report(prediction())).splitlines()
    below = [line.strip() for line in lines[next(n for n, line in enumerate(lines) if line.strip().startswith("saved")) + 1 :]]
    assert below[0].startswith(("at peak: requested", "give or take"))
    assert not any(line.startswith("of that") for line in below)


@pytest.mark.parametrize("width", [60, 80, 132])
def test_many_runs_go_below_each_other(width):
    text = shown(report(*(prediction(conf=f"max_split_size_mb:{20 + n}") for n in range(30))), width)
    assert max(map(len, text.splitlines())) <= width
    letters = [word for line in text.splitlines() if line.split()[:1] == ["recorded"] and "MiB" not in line and "," not in line
               for word in line.split()[1:]]  # fmt: skip
    assert letters == [simulate.name_of(n) for n in range(30)]
    assert letters[-4:] == ["AA", "AB", "AC", "AD"]


def test_names_from_a_file_cannot_act_on_the_terminal():
    first = FirstOom(1, 1, "\x1b[31mred", "a\nb", 1, 1, None, None)
    text = shown(report(prediction(conf="x\x07:1", first_oom=first, num_ooms=1)), unicode=False)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.isascii()


def test_json_is_ascii_and_whole():
    first = FirstOom(1, 1, "é", "", 1, 1, None, None)
    text = simulate_json.render(report(prediction(first_oom=first, num_ooms=1), calibration=UNCALIBRATED))
    assert text.isascii()
    back = json.loads(text)
    assert back["calibration"]["exact"] is None
    assert back["results"][0]["first_oom"]["name"] == "é"
    assert back["results"][0]["fragmentation"]["stranded_bytes"] == 8 * MIB
