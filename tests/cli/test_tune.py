"""``memdiag tune`` calibrates first, and recommends one line for all ranks with supported, useful settings only."""

import json
import re
import shutil

import pytest

from memdiag.cli.main import main
from memdiag.render.tune.terminal import render
from memdiag.results.prediction import CalibrationReport
from memdiag.results.tune import Reason, Recommended, Score, Tried, TunedTrace, TuneReport


@pytest.fixture
def tuned(capsys):
    def run(*arguments):
        assert main(["tune", "--json", *map(str, arguments)]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_it_says_that_only_the_recorded_part_is_ranked(capsys, goldens):
    assert main(["tune", str(goldens / "cuda-2.13.0-oom" / "snapshot.pickle")]) == 0
    assert "The ranking ignores the rest of the run" in " ".join(capsys.readouterr().out.split())


def test_a_run_that_failed_gets_past_its_failure(tuned, goldens):
    found = tuned(goldens / "cuda-2.13.0-oom" / "snapshot.pickle")
    assert found["traces"][0]["calibration"]["exact_fraction"] == 1.0
    assert not found["baseline"]["fits"]
    best = found["recommended"]
    assert (best["fits"], best["fits_basis"], best["num_ooms"]) == (None, "past_failure", 0)
    (outlook,) = best["outlooks"]
    assert outlook["failed_request_bytes"] > 0
    assert outlook["rerun_command"].startswith("memdiag record --phantom cuda:")
    assert "the failed allocation succeeds; the rest of the run is unknown" in found["verdict"]
    assert best["command"].startswith("export PYTORCH_CUDA_ALLOC_CONF=")
    assert best["conf"] in best["command"]
    assert best["contributions"]
    assert all((each["fits"], each["num_ooms"]) == (None, 0) for each in found["pareto_front"])
    peaks = [each["peak_reserved_bytes"] for each in found["pareto_front"]]
    assert peaks == sorted(peaks)


def test_what_simulate_says_of_the_line_is_what_tune_says(tuned, goldens, capsys):
    file = goldens / "cuda-2.13.0-train" / "snapshot.pickle"
    best = tuned(file)["recommended"]
    assert main(["simulate", "--json", str(file), "--conf", best["conf"]]) == 0
    result = json.loads(capsys.readouterr().out)["results"][0]
    assert [result[key] for key in ("peak_reserved_bytes", "num_retries", "num_device_allocs", "saved_bytes")] == [
        best[key] for key in ("peak_reserved_bytes", "num_retries", "num_device_allocs", "saved_bytes")
    ]


def test_an_npu_gets_its_own_variable_and_keys(tuned, goldens):
    found = tuned(goldens / "npu-2.13.0-train" / "snapshot.pickle")
    for each in found["pareto_front"]:
        assert not ("expandable_segments" in each["conf"] and "max_split_size_mb" in each["conf"])
    if found["recommended"]:
        assert "PYTORCH_NPU_ALLOC_CONF=" in found["recommended"]["command"]


def test_one_line_for_all_ranks(tuned, goldens, tmp_path):
    for rank, name in enumerate(("cuda-2.13.0-oom", "cuda-2.13.0-train")):
        shutil.copy(goldens / name / "snapshot.pickle", tmp_path / f"rank{rank}.pkl")
    found = tuned(tmp_path)
    assert [trace["path"].rpartition("/")[2] for trace in found["traces"]] == ["rank0.pkl", "rank1.pkl"]
    assert all(len(each["peak_reserved_bytes_by_trace"]) == 2 for each in found["pareto_front"])
    # one of the ranks failed
    assert (found["recommended"]["fits"], found["recommended"]["num_failing_traces"]) == (
        None,
        0,
    )


def test_backends_are_not_mixed(goldens, capsys):
    files = [goldens / name / "snapshot.pickle" for name in ("cuda-2.13.0-train", "npu-2.13.0-train")]
    assert main(["tune", *map(str, files)]) == 2
    assert "no settings in common" in capsys.readouterr().err


def test_what_was_there_before_counts_the_same_for_all(tuned, goldens):
    found = tuned(goldens / "cuda-2.13.0-late" / "snapshot.pickle")
    assert found["baseline"]["peak_reserved_bytes"] >= max(
        each["peak_reserved_bytes"] for each in found["pareto_front"][:1]
    )
    if found["recommended"]:
        assert any("already allocated" in caveat for caveat in found["recommended"]["caveats"])


def test_a_smaller_card(tuned, goldens):
    found = tuned(goldens / "cuda-2.13.0-train" / "snapshot.pickle", "--capacity", "1GiB")
    assert found["traces"][0]["capacity_bytes"] == 1 << 30


def test_without_allocations_it_says_so(goldens, capsys):
    assert main(["tune", str(goldens / "cuda-2.13.0-state-only" / "snapshot.pickle")]) == 2
    assert "no allocations to replay" in capsys.readouterr().err


def test_a_text_report(goldens, capsys):
    assert main(["tune", str(goldens / "cuda-2.13.0-oom" / "snapshot.pickle"), "--budget-seconds", "30"]) == 0
    said = capsys.readouterr().out
    for words in (
        "CALIBRATED",
        "exact: a replay reproduces 70 of 70",
        "SET",
        "export PYTORCH_CUDA_ALLOC_CONF=",
        "recorded",
        "driver calls",
    ):
        assert words in said


def test_what_is_recommended_is_in_the_table_and_nothing_there_dominates_it(tuned, goldens):
    axes = ("num_failing_traces", "num_ooms", "peak_reserved_bytes", "num_retries")
    for name in ("cuda-2.13.0-oom", "cuda-2.13.0-train", "cuda-2.13.0-roundup", "npu-2.13.0-train"):
        found = tuned(goldens / name / "snapshot.pickle", "--min-saving", "0", "--budget-seconds", "5")
        best = found["recommended"]
        if best is None:
            continue
        rows = [
            (*(each[axis] for axis in axes), each["num_device_allocs"] + each["num_device_frees"])
            for each in found["pareto_front"]
        ]
        mine = (*(best[axis] for axis in axes), best["num_device_allocs"] + best["num_device_frees"])
        assert mine in rows, name
        assert not [row for row in rows if row != mine and all(a <= b for a, b in zip(row, mine, strict=True))], name


def test_a_file_that_does_not_tell_its_version_gets_keys_of_every_version_only(tuned, goldens):
    found = tuned(goldens / "npu-2.13.0-train" / "snapshot.pickle", "--min-saving", "0", "--budget-seconds", "5")
    for each in found["pareto_front"]:
        assert not re.findall(
            "large_segment_size_mb|segment_size_mb|max_non_split|roundup_power2|lazy_reclaim", each["conf"]
        )


def test_a_small_saving_is_recommended_only_if_asked_for(tuned, goldens):
    file = goldens / "cuda-2.13.0-train" / "snapshot.pickle"
    best = tuned(file, "--min-saving", "0")["recommended"]
    share = 100 * best["saved_bytes"] / (best["peak_reserved_bytes"] + best["saved_bytes"])
    found = tuned(file, "--min-saving", f"{share + 20:.1f}")
    assert found["recommended"] is None
    assert "--min-saving 0" in found["verdict"]


def test_the_cpu_has_no_settings_to_tune(goldens, capsys):
    assert main(["tune", str(next((goldens / "cpu-2.13.0-recorded").glob("*.p*kl*")))]) == 2
    assert "no settings to tune" in capsys.readouterr().err


def test_the_recorded_row_is_what_was_recorded(tuned, goldens, shared):
    found = tuned(goldens / "cuda-2.13.0-train" / "snapshot.pickle", "--budget-seconds", "5")
    assert found["recorded"]["peak_reserved_bytes"] == found["traces"][0]["recorded_peak_reserved_bytes"]
    file = shared / "data" / "snapshots" / "kkaitlyn111__cs336-a2-systems__memory_2.7b_forward.pickle"
    if file.exists():
        found = tuned(file, "--budget-seconds", "5")
        assert (
            found["recorded"]["peak_reserved_bytes"]
            == found["traces"][0]["recorded_peak_reserved_bytes"]
            == 51_849_986_048
        )
        assert found["baseline"]["peak_reserved_bytes"] < found["recorded"]["peak_reserved_bytes"]


def test_the_recorded_and_the_replayed_row_are_told_apart():
    calibration = CalibrationReport(1, 1, 1.0, None, 0)
    trace = TunedTrace("a.pkl", 0, "2.13", calibration, "", 48 << 30, None, 10)
    tried = Tried("", Score(0, 0, (32 << 30,), 0, 5, 0), 0)
    report = TuneReport(
        (trace,), Score(0, 0, (48 << 30,), 1, 9, 2), tried, (tried,), None, "nothing", 0, 3, 0, 0.1, is_complete=True
    )
    said = " ".join(render(report).split())
    assert "recorded 48.00 GiB - 1 11" in said
    assert "replayed 32.00 GiB 0 B 0 5" in said
    assert "without the memory that was cached before" in said


def test_keeping_is_an_answer():
    calibration = CalibrationReport(100, 90, 0.9, None, 5 << 20)
    trace = TunedTrace("a.pkl", 0, "2.13", calibration, "", 100 << 20, None, 10)
    tried = Tried("", Score(0, 0, (100 << 20,), 0, 5, 0), 0)
    report = TuneReport(
        (trace,),
        tried.score,
        tried,
        (tried,),
        None,
        "nothing that was tried does better",
        5 << 20,
        3,
        0,
        0.1,
        is_complete=False,
    )
    said = render(report)
    assert "KEEP" in said
    assert "off by up to 5.00 MiB" in " ".join(said.split())
    assert "--budget-seconds" in said


def test_reasons_are_told():
    calibration = CalibrationReport(1, None, None, None, None)
    trace = TunedTrace("a.npz", 0, "2.13", calibration, "", None, None, 10)
    score = Score(0, 0, (50 << 20,), 0, 5, 0)
    best = Tried("x:1,y:2", score, 50 << 20)
    reasons = (Reason("x:1", 60 << 20, 2, 9, True), Reason("y:2", 60 << 20, 0, 5, False))
    recommended = Recommended("x:1,y:2", "export V=x:1,y:2", best, reasons, ("mind this",))
    report = TuneReport((trace, trace), score, best, (best,), recommended, "it pays", None, 3, 0, 0.1, is_complete=True)
    said = " ".join(render(report).split())
    more = "10.00 MiB higher, 2 more retries would happen, 4 more driver calls would be needed"
    for words in ("NOT CALIBRATED", more, "a request would fail", "mind this", "Reserved peak of each trace"):
        assert words in said
