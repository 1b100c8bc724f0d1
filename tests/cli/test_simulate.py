"""``memdiag simulate`` reads its options, and prints predictions in every form."""

from __future__ import annotations

import json

import numpy as np
import pytest

from memdiag.cli.main import main
from memdiag.sources import load
from memdiag.units import MIB

RESULT_KEYS = [
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
]
CURVES = ("reserved", "allocated", "active", "requested", "retries", "ooms", "device_allocs", "device_frees")


@pytest.fixture
def asked(capsys):
    """Runs the command with --json and returns its output."""

    def ask(*arguments: object) -> dict:
        assert main(["simulate", "--json", *map(str, arguments)]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def refused(capsys):
    """Runs the command, which must fail, and returns the error and the hint."""

    def ask(*arguments: object) -> tuple[str, str]:
        assert main(["simulate", *map(str, arguments)]) == 2
        error, hint = capsys.readouterr().err.strip().splitlines()[-2:]
        assert error.startswith("error: ")
        assert hint.startswith("hint: ")
        return error[7:], hint[6:]

    return ask


@pytest.fixture
def train(goldens):
    return goldens / "cuda-2.13.0-train" / "snapshot.pickle"


def test_json_has_the_keys_that_are_promised(asked, train):
    shown = asked(train, "--policy", "caching,expandable")
    assert shown["schema_version"] == 2
    assert list(shown["calibration"])[:5] == [
        "num_events",
        "num_exact",
        "exact_fraction",
        "first_divergence",
        "calibration_error_bytes",
    ]
    assert shown["calibration"]["num_exact"] == shown["calibration"]["num_events"] > 300
    assert (shown["calibration"]["exact_fraction"], shown["calibration"]["first_divergence"]) == (1.0, None)
    assert [result["policy"] for result in shown["results"]] == ["caching", "expandable"]
    for result in shown["results"]:
        assert list(result)[: len(RESULT_KEYS)] == RESULT_KEYS
    own, other = shown["results"]
    recorded = load(train).devices[0].usage.reserved.max()
    assert (own["peak_reserved_bytes"], own["saved_bytes"], own["fits"]) == (recorded, 0, True)
    assert other["saved_bytes"] == recorded - other["peak_reserved_bytes"]
    assert (own["conf"], own["capacity_bytes"], own["first_oom"]) == ("", None, None)


PARTS = ("rounding", "pending", "stranded", "foreign", "cache")


def test_the_split_adds_up_at_its_moment(asked, train):
    for result in asked(train, "--policy", "caching,expandable,npu,npu-expandable")["results"]:
        split, moment = result["fragmentation"], result["moment"]
        assert moment["reserved_bytes"] - sum(split[f"{name}_bytes"] for name in PARTS) == moment["requested_bytes"] > 0
        assert (moment["kind"], moment["at_event"]) == ("peak", split["at_event"])


@pytest.mark.parametrize("at", [(), ("--at", "end"), ("--at", "reserved"), ("--at", "allocated"), ("--at", "40")])
@pytest.mark.parametrize("recording", ["cuda-2.13.0-train", "cuda-2.13.0-oom-dump"])
def test_the_moment_is_that_of_analyze(asked, goldens, capsys, recording, at):
    file = goldens / recording / "snapshot.pickle"
    assert main(["analyze", "--json", str(file), *map(str, at)]) == 0
    device = json.loads(capsys.readouterr().out)["devices"][0]
    shown = asked(file, *at)
    (own,), recorded = shown["results"], shown["recorded"]
    assert recorded["moment"] == device["moment"]
    assert recorded["fragmentation"] == device["fragmentation"]
    assert (own["moment"]["kind"], own["moment"]["at_event"]) == (
        device["moment"]["kind"],
        device["moment"]["at_event"],
    )
    assert own["moment"]["allocated_bytes"] == device["moment"]["allocated_bytes"]


def test_a_run_that_no_longer_fails_is_split_at_its_peak(asked, goldens):
    file = goldens / "cuda-2.13.0-oom-dump" / "snapshot.pickle"
    shown = asked(file, "--capacity", "64GiB")
    assert [shown["recorded"]["moment"]["kind"], shown["results"][0]["moment"]["kind"]] == ["oom", "peak"]


def test_a_moment_that_no_run_has_is_refused(refused, train):
    assert "no out-of-memory event" in refused(train, "--at", "oom")[0]
    assert "the trace does not contain event 99999999" in refused(train, "--at", 99_999_999)[0]
    assert "does not know this moment" in refused(train, "--at", "noon")[0]


def test_policies_times_settings(asked, train):
    shown = asked(
        "--conf",
        "",
        "--policy",
        "caching",
        "--conf",
        "expandable_segments:True",
        train,
        "--policy",
        "npu",
        "--torch",
        "2.12",
    )
    assert [(r["policy"], r["conf"], r["torch_version"]) for r in shown["results"]] == [
        ("caching", "", "2.12"),
        ("caching", "expandable_segments:True", "2.12"),
        ("npu", "", "2.12"),
        ("npu", "expandable_segments:True", "2.12"),
    ]


def test_settings_may_stand_as_they_are_pasted(asked, train):
    shown = asked(train, "--conf", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64")
    assert shown["results"][0]["conf"] == "max_split_size_mb:64"


def test_without_settings_the_recorded_ones_are_taken(asked, goldens):
    shown = asked(goldens / "cuda-2.13.0-expandable" / "snapshot.pickle")
    assert [(r["policy"], r["conf"], r["saved_bytes"]) for r in shown["results"]] == [
        ("caching", "expandable_segments:True", 0)
    ]
    shown = asked(goldens / "npu-2.13.0-train" / "snapshot.pickle", "--policy", "npu,npu-expandable")
    assert [r["policy"] for r in shown["results"]] == ["npu", "npu-expandable"]


def test_a_card_that_is_too_small_is_a_result(asked, goldens):
    shown = asked(goldens / "cuda-2.13.0-recorded" / "snapshot.pickle", "--capacity", "30MiB")
    (result,) = shown["results"]
    assert (result["fits"], result["capacity_bytes"]) == (False, 30 * MIB)
    first = result["first_oom"]
    assert first["name"]
    assert first["site"]
    assert first["shortfall_bytes"] > 0
    assert first["reserved_bytes"] <= first["usable_bytes"] == 30 * MIB
    assert result["num_ooms"] > 0
    half = asked(goldens / "cuda-2.13.0-recorded" / "snapshot.pickle", "--capacity", "60MiB", "--fraction", "0.5")[
        "results"
    ][0]
    assert (half["capacity_bytes"], half["first_oom"]) == (60 * MIB, first)


def test_the_smallest_card_is_one_on_which_it_just_runs(asked, train):
    (result,) = asked(train, "--min-capacity")["results"]
    smallest = result["min_capacity_bytes"]
    assert smallest <= result["peak_reserved_bytes"]
    assert asked(train, "--capacity", smallest)["results"][0]["fits"]
    assert not asked(train, "--capacity", smallest - 2 * MIB)["results"][0]["fits"]
    assert asked(train)["results"][0]["min_capacity_bytes"] is None


@pytest.mark.parametrize("name", ["streams-1-2GiB", "pools-2-4GiB", "pressure-1-2GiB"])
def test_rows_are_those_of_the_real_allocator(shared, asked, tmp_path, name):
    file = shared / "data" / "oracle" / f"{name}.npz"
    if not file.is_file():
        pytest.skip("the data folder ../shared beside the repository holds no recorded rows")
    truth = np.load(file)
    conf = str(truth["confs"][3])
    shown = asked(file, "--policy", "caching", "--conf", conf, "--rows", tmp_path / "rows.npz")
    rows = np.load(tmp_path / "rows.npz")
    assert set(rows.files) == {"seg", "off", *CURVES}
    assert all(rows[column].dtype == np.int64 and len(rows[column]) == len(truth["op"]) for column in rows.files)
    for column in CURVES:
        assert (rows[column] == np.cumsum(truth[f"3/{column}"].astype(np.int64))).all()
    made = (truth["op"] == 0) & (truth["3/status"] == 0) & (truth["size"] > 0)
    for column in ("seg", "off"):
        assert (rows[column][made] == np.cumsum(truth[f"3/{column}"].astype(np.int64))[made]).all()
        assert (rows[column][~made] == -1).all()
    assert shown["calibration"]["num_exact"] is None
    assert shown["results"][0]["capacity_bytes"] == int(truth["total"])
    assert shown["results"][0]["peak_reserved_bytes"] == rows["reserved"].max()


def test_npu_rows_have_addresses(shared, asked, tmp_path):
    file = shared / "data" / "oracle-npu" / "edge-1-6GiB.npz"
    if not file.is_file():
        pytest.skip("the data folder ../shared beside the repository holds no recorded rows")
    truth = np.load(file)
    asked(file, "--policy", "npu", "--conf", truth["confs"][1], "--rows", tmp_path / "rows.npz")
    rows = np.load(tmp_path / "rows.npz")
    assert (rows["addr"] == truth["1/addr"]).all()
    assert (rows["reserved"] == truth["1/reserved"]).all()


def test_rows_of_a_recording_stand_at_its_events(asked, train, tmp_path):
    asked(train, "--rows", tmp_path / "rows.npz")
    rows, device = np.load(tmp_path / "rows.npz"), load(train).devices[0]
    made = device.events.action == 0
    assert (rows["reserved"][made] == device.usage.reserved[made]).all()
    assert (rows["allocated"][made] == device.usage.allocated[made]).all()
    assert (rows["seg"][made] >= 0).all()
    assert (rows["seg"][~made] == -1).all()


def test_the_simulated_run_is_a_trace(asked, train, tmp_path, capsys):
    out = tmp_path / "simulated.pkl"
    shown = asked(train, "--policy", "expandable", "--out", out)
    assert load(out).devices[0].usage.reserved.max() == shown["results"][0]["peak_reserved_bytes"]
    assert main(["analyze", str(out)]) == 0
    assert "imulated" in capsys.readouterr().out


def test_the_table_says_what_is_asked(goldens, tmp_path):
    file = goldens / "cuda-2.13.0-oom-dump" / "snapshot.pickle"
    table = tmp_path / "table.txt"
    assert (
        main(["simulate", str(file), "--policy", "caching,expandable", "--min-capacity", "--output", str(table)]) == 0
    )
    text = table.read_text()
    for words in (
        "CALIBRATED  exact",
        "recorded",
        "peak reserved",
        "saved",
        "retries",
        "out of memory",
        "smallest card",
        "A runs out of memory",
    ):
        assert words in text
    assert "this process could use 512.00 MiB" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100


def test_several_devices(asked, goldens, refused, capsys):
    file = goldens / "cuda-2.13.0-two-devices" / "snapshot.pickle"
    assert asked(file, "--device", 1)["device"] == 1
    assert main(["simulate", str(file)]) == 0
    assert "--device chooses another" in capsys.readouterr().err
    error, hint = refused(file, "--device", 2)
    assert error == "the trace does not contain device 2"
    assert hint == "the trace has these devices: 0, 1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "cachin"], ["--policy cachin", "did you mean caching?"]),
        (["--policy", "expandible,npu"], ["expandible", "did you mean expandable?"]),
        (["--conf", "max_split_size:64"], ["did you mean max_split_size_mb?"]),
        (["--conf", "max_split_size_mb:3"], ["max_split_size_mb:3", "20"]),
        (["--policy", "npu-expandable", "--conf", "max_split_size_mb:64"], ["npu", "cannot be combined"]),
        (["--torch", "new"], ["--torch new", "2.6"]),
        (["--torch", "9.9"], ["--torch 9.9: newer than any version", "from 2.0 to 2.15"]),
        (["--torch", "1.13"], ["--torch 1.13: older than", "from 2.0 to 2.15"]),
        (["--capacity", "much"], ["not a size"]),
        (["--capacity", "0"], ["--capacity 0"]),
        (["--fraction", "1.5"], ["--fraction 1.5"]),
        (["--fraction", "0.5"], ["--capacity"]),
        (["--rows", "x.npz", "--policy", "caching,npu"], ["--rows", "one"]),
        (["--out", "x.pkl", "--conf", "", "--conf", "expandable_segments:True"], ["--out", "one"]),
    ],
)
def test_what_cannot_be_done_is_said_with_a_hint(refused, train, arguments, words):
    said = " ".join(refused(train, *arguments))
    for word in words:
        assert word in said


def test_traces_without_events_are_refused(refused, goldens, train):
    error, hint = refused(goldens / "cuda-2.13.0-no-trace" / "snapshot.pickle")
    assert "no allocations to replay: it contains memory at one moment, without history" in error
    assert "memdiag record" in hint
    assert "would overwrite the trace" in refused(train, "--out", train)[0]


def test_a_recording_of_the_cpu_is_asked_of_another_allocator(asked, goldens):
    shown = asked(goldens / "cpu-2.13.0-recorded" / "snapshot.pickle", "--policy", "caching,npu")
    assert shown["calibration"]["num_exact"] is None
    assert [result["saved_bytes"] for result in shown["results"]] == [None, None]
    assert any("cpu" in note for note in shown["calibration"]["notes"])


def test_a_policy_has_the_first_version_that_knows_it(asked, goldens, refused):
    """A version below the first one that supports the policy is refused: expandable segments need torch 2.1."""
    file = goldens / "cuda-2.13.0-train" / "snapshot.pickle"
    assert asked(file, "--policy", "expandable")["results"][0]["torch_version"] != "2.1"
    assert asked(file, "--policy", "caching", "--torch", "2.0")["results"][0]["torch_version"] == "2.0"
    assert "not known" in refused(file, "--policy", "expandable", "--torch", "2.0")[0]
    from memdiag.runs.scenarios import version_for

    assert [version_for(policy, "2.0") for policy in ("caching", "expandable")] == ["2.0", "2.1"]
    assert version_for("expandable", "2.6") == "2.6"


def test_variables_go_to_the_policies_that_read_them(asked, train):
    shown = asked(
        train,
        "--policy",
        "caching,stitch,lifecycle",
        "--conf",
        "fragLimit=2097152,ALR_MAX=99999999999,max_split_size_mb:64",
    )
    assert [result["conf"] for result in shown["results"]] == [
        "max_split_size_mb:64",
        "fragLimit=2097152,max_split_size_mb:64",
        "ALR_MAX=99999999999,max_split_size_mb:64",
    ]
    assert shown["results"][1]["stitching"]["frag_limit_bytes"] == 2 << 20
    assert shown["advice"]["code"] == "MD114"
    (behind,) = asked(
        train, "--policy", "lifecycle", "--conf", "ALR_MAX=5000000000 PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:64"
    )["results"]
    assert behind["conf"] == "ALR_MAX=5000000000,max_split_size_mb:64"
