"""The table of ``memdiag simulate`` shows unknown and differing values, and fits many runs and narrow terminals."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from memdiag.render.simulate import json as simulate_json
from memdiag.render.simulate import terminal as simulate
from memdiag.render.simulate.answer import answer
from memdiag.render.support.look import Look
from memdiag.results.outlook import Outlook
from memdiag.results.prediction import (
    CalibrationReport,
    FirstDivergence,
    FirstOom,
    Prediction,
    PredictionReport,
    RecordedRun,
)
from memdiag.results.report import Fragmentation, ReportMoment
from memdiag.text import in_language
from memdiag.units import GIB, MIB

SPLIT = Fragmentation(12, 30 * MIB, "this request", 1000, 0, 8 * MIB, 4 * MIB, 60 * MIB, 5 * MIB)
NO_SPLIT = Fragmentation(None, None, None, None, None, None, None, None, None)
PEAK = ReportMoment(500 * MIB, 400 * MIB, 400 * MIB, 390 * MIB, at_event=12, kind="peak", lost_bytes=12 * MIB)
EXACT = CalibrationReport(248, 248, 1.0, None, 0, 209, 209, "2.13")
INEXACT = CalibrationReport(
    100_000,
    99_999,
    0.99999,
    FirstDivergence(7, "address", "512 bytes into a segment", "in a new segment", "unknown slack"),
    2 * MIB,
    9,
    8,
    "2.6",
    ("nothing was refused",),
)
UNCALIBRATED = CalibrationReport(50, None, None, None, None)


def prediction(policy="caching", conf="", **values) -> Prediction:
    known = {
        "policy": policy,
        "conf": conf,
        "torch_version": "2.13",
        "capacity_bytes": GIB,
        "peak_reserved_bytes": 500 * MIB,
        "peak_allocated_bytes": 400 * MIB,
        "peak_requested_bytes": 390 * MIB,
        "num_retries": 1,
        "num_ooms": 0,
        "first_oom": None,
        "fits": True,
        "num_device_allocs": 40,
        "num_device_frees": 3,
        "fragmentation": SPLIT,
        "saved_bytes": 24 * MIB,
        "moment": PEAK,
    }
    return Prediction(**{**known, **values})


def report(*results, calibration=EXACT, recorded=None, **values) -> PredictionReport:
    run = recorded or RecordedRun(524 * MIB, 400 * MIB, 2, 1, 50, None, SPLIT, "caching", "", PEAK)
    return PredictionReport(
        "trace.pkl",
        0,
        1000,
        calibration,
        run,
        results,
        values.pop("capacity_bytes", GIB),
        is_capacity_known=False,
        **values,
    )


def shown(given: PredictionReport, width=80, *, unicode=True) -> str:
    return simulate.render(given, Look(width=width, unicode=unicode))


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip().startswith(name.strip()) and name in f"  {line}")
    return line.strip()[len(name.strip()) :].split()


def test_exact_and_beside_the_recorded_run():
    text = shown(report(prediction(is_recorded=True), prediction("expandable", saved_bytes=-3 * MIB)))
    assert "\nCALIBRATED  exact: a replay of the recorded settings reproduces 248 of 248" in text
    assert row(text, "peak reserved") == ["524.00", "MiB", "500.00", "MiB", "500.00", "MiB"]
    assert row(text, "saved") == ["24.00", "MiB", "3.00", "MiB", "more"]
    assert "error (±)" not in text
    assert row(text, "run fits") == ["out", "of", "memory", "yes", "yes"]
    assert "at most 1.00 GiB" in text


def test_a_model_that_is_not_exact_never_says_100_percent():
    text = shown(report(prediction(calibration_error_bytes=2 * MIB), calibration=INEXACT))
    assert "99.99 %" in text
    assert "100" not in text[text.index("CALIBRATED") :].replace("100,000", "")
    assert "First difference at event 7" in text
    assert "Probable cause: unknown slack." in text
    assert row(text, "error (±)") == ["2.00", "MiB"]
    assert "Nothing was refused." in text


def test_what_is_not_known_is_a_dash():
    nothing = RecordedRun(None, 5, None, None, None, None, NO_SPLIT, "caching", None)
    text = shown(report(prediction(saved_bytes=None), calibration=UNCALIBRATED, recorded=nothing, capacity_bytes=None))
    assert "\nNOT CALIBRATED" in text
    assert row(text, "saved") == ["-"]
    assert row(text, "run fits") == ["-", "yes"]
    assert "unknown settings" in text


def test_a_failure_says_what_was_asked_for_and_what_it_lacked():
    first = FirstOom(
        1204, 512 * MIB, "layers.3.mlp (gelu)", "train.py:35 forward", 900 * MIB, 800 * MIB, GIB, 388 * MIB, 3 * MIB
    )
    text = " ".join(shown(report(prediction(first_oom=first, num_ooms=3, fits=False))).split())
    assert (
        "A runs out of memory at event 1,204: a request for 512.00 MiB (layers.3.mlp (gelu) · train.py:35 forward) "
        "fails with"
    ) in text
    assert "900.00 MiB of 1.00 GiB reserved. The driver would have needed 388.00 MiB more free memory." in text
    assert "The largest free block of the request's pool and stream has 3.00 MiB." in text
    assert "2 later requests would also fail." in text


def test_the_smallest_card_has_a_row_if_asked_for():
    assert "smallest card" not in shown(report(prediction()))
    text = shown(
        report(prediction(min_capacity_bytes=256 * MIB), prediction(min_capacity_bytes=None), with_min_capacity=True)
    )
    assert row(text, "smallest card") == ["256.00", "MiB", "-"]


def test_the_split_names_the_moment_of_each_run():
    failed = replace(PEAK, kind="oom", at_event=7)
    chosen = replace(PEAK, kind="event", at_event=1204, reserved_bytes=480 * MIB)
    text = shown(report(prediction(moment=failed), prediction(moment=chosen), prediction(moment=None)))
    assert row(text, "reserved memory at") == ["peak", "out", "of", "memory", "event", "1,204", "-"]
    assert row(text, "  reserved  ") == ["500.00", "MiB", "500.00", "MiB", "480.00", "MiB", "-"]
    assert row(text, "  requested  ")[:2] == ["390.00", "MiB"]


@pytest.mark.parametrize("width", [60, 80, 132])
def test_many_runs_go_below_each_other(width):
    text = shown(report(*(prediction(conf=f"max_split_size_mb:{20 + n}") for n in range(30))), width)
    assert max(map(len, text.splitlines())) <= width
    heads = [line.split()[1:] for line in text.splitlines() if line.split()[:1] == ["recorded"]]
    letters = [word for words in heads for word in words if word.isalpha() and word.isupper()]
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
    assert back["calibration"]["num_exact"] is None
    assert back["results"][0]["first_oom"]["name"] == "é"
    assert back["results"][0]["fragmentation"]["stranded_bytes"] == 8 * MIB


FAILED = FirstOom(1204, 512 * MIB, "", "", 900 * MIB, 800 * MIB, GIB, 388 * MIB, 3 * MIB)
OOM = {"fits": False, "num_ooms": 1, "first_oom": FAILED, "outlook": Outlook(False, "replay")}
PAST = {"fits": None, "outlook": Outlook(None, "past_failure", 66, 13 * MIB)}
CACHING = "With policy caching and default settings"


def said(*results, **values) -> str:
    return answer(report(*results, **values), list("ABCDEF"[: len(results)]))


@pytest.mark.parametrize(
    ("values", "beginning"),
    [
        (
            {"conf": "expandable_segments:True", "policy": "expandable"},
            "With expandable_segments:True, this run reserves 500.00 MiB at its",
        ),
        (
            {"policy": "stitch", "outlook": Outlook(True, "recorded_part")},
            "With policy stitch and default settings, the recorded part of",
        ),
        ({"is_recorded": True}, "With the recorded settings, this run reserves 500.00 MiB at its peak. "),
        (
            {"capacity_bytes": 2 * GIB, "is_recorded": True},
            "With the recorded settings on a card of 2.00 GiB, this run reserves",
        ),
        ({"saved_bytes": 0}, f"{CACHING}, this run reserves 500.00 MiB at its peak, as with the recorded settings."),
        (OOM, f"{CACHING}, this run runs out of memory at event 1,204, at an allocation of 512.00 MiB."),
        (PAST, f"{CACHING}, this run gets past the failed allocation; the rest of the run is unknown. "),
        ({"num_calls_past_assertion": 1}, f"{CACHING}, the real allocator stops"),
    ],
)
def test_the_answer_on_one_run(values, beginning):
    assert said(prediction(**values)).startswith(beginning)


def test_the_peak_is_compared_with_that_of_the_recorded_settings():
    assert "500.00 MiB at its peak instead of 524.00 MiB (5% less)." in said(prediction("stitch"))
    assert "500.00 MiB at its peak instead of 400.00 MiB (25% more)." in said(
        prediction("stitch", saved_bytes=-100 * MIB)
    )


@pytest.mark.parametrize(
    ("results", "beginning"),
    [
        (
            (prediction(peak_reserved_bytes=9 * MIB), prediction(peak_reserved_bytes=8 * MIB)),
            "Best of 2 simulated runs: B. ",
        ),
        ((prediction(), prediction(peak_reserved_bytes=8 * MIB, **OOM)), "Best of 2 simulated runs: A. "),
        ((prediction(**OOM), prediction(**PAST)), "Best of 2 simulated runs: B. "),
        (
            (prediction(**OOM), prediction(peak_reserved_bytes=8 * MIB, **OOM)),
            "None of the 2 simulated runs fits; closest to fitting: B. ",
        ),
        (
            (
                prediction(min_capacity_bytes=516 * MIB, **OOM),
                prediction(min_capacity_bytes=556 * MIB, peak_reserved_bytes=8 * MIB, **OOM),
            ),
            "None of the 2 simulated runs fits; closest to fitting: A. ",
        ),
        (
            (prediction(), prediction("stitch"), prediction(**OOM)),
            "A, B are equally good, the best of 3 simulated runs. ",
        ),
    ],
)
def test_the_best_of_several_is_named(results, beginning):
    assert said(*results).startswith(beginning)


def test_a_bound_is_never_the_best():
    bound = prediction("bound", peak_reserved_bytes=1, standing="bound")
    text = said(prediction(), prediction("stitch", standing="checked"), bound)
    assert text.startswith("A, B are equally good, the best of 2 simulated runs.")
    assert "C: for comparison only." in text


def test_a_model_without_calibration_is_marked_wherever_it_is_shown():
    model = prediction("toy", standing="uncalibrated")
    text = said(prediction(peak_reserved_bytes=600 * MIB), model)
    assert "B: simulated by a model without calibration." in text
    assert text.endswith("has not compared it with the real allocator.")
    assert "Calibration:" not in text  # that would be the calibration of the recorded allocator
    shown = simulate.render(report(model))
    assert "model without calibration" in " ".join(shown.split("recorded", 1)[1].split())
    results = json.loads(simulate_json.render(report(prediction(), model)))["results"]
    assert [result.get("is_calibrated") for result in results] == [True, False]


@pytest.mark.parametrize(
    ("calibration", "end"),
    [
        (EXACT, "Calibration: the model reproduces the recording exactly."),
        (INEXACT, "its reserved memory, and so the prediction, can be off by 2.00 MiB."),
        (UNCALIBRATED, "the error of this prediction is unknown."),
    ],
)
def test_the_calibration_stands_behind_it(calibration, end):
    assert said(prediction(), calibration=calibration).endswith(end)


def test_the_smallest_card_is_part_of_the_answer_where_it_was_asked_for():
    assert "The smallest card on which this run fits has 1.00 GiB." in said(
        prediction(min_capacity_bytes=GIB), with_min_capacity=True
    )
    assert "The smallest card on which the whole run fits has at least 1.00 GiB." in said(
        prediction(min_capacity_bytes=GIB, **PAST), with_min_capacity=True
    )


def test_it_speaks_chinese():
    given = answer(report(prediction(), prediction("stitch")), ["A", "B"])
    assert in_language(given, "zh").startswith("A, B 同样好")
