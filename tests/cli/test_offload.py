"""``memdiag simulate --policy offload`` reads its options, and prints the plan and its cost."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from memdiag.cli.main import main
from memdiag.oom.dialects import mindspore

RECORDED = next(iter(sorted((Path(__file__).parents[1] / "goldens" / "cuda-2.13.0-recorded").glob("*.pickle"))))


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(["simulate", str(RECORDED), *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_json_tells_the_plan(capsys):
    code, out, _ = run(
        capsys, "--policy", "caching,offload", "--max-device-memory", "72MiB", "--step-seconds", "1", "--json"
    )
    assert code == 0
    plain, moved = json.loads(out)["results"]
    assert (plain["policy"], moved["policy"]) == ("caching", "offload")
    told = moved["offload"]
    assert told["strategy"] == "automatic"
    assert told["fits"] == moved["fits"]
    assert told["live_peak_lower_bound_bytes"] <= told["live_peak_after_bytes"] <= told["live_peak_before_bytes"]
    assert {
        "moved",
        "recomputable",
        "snippets",
        "offloaded_bytes_per_step",
        "exposed_us_per_step",
        "host_peak_bytes",
    } <= set(told)


@pytest.mark.parametrize("link", ["hccs", "pcie4x16", "20GB/s"])
def test_where_rates_come_from_is_said(capsys, link):
    code, out, _ = run(
        capsys, "--policy", "offload", "--max-device-memory", "72MiB", "--step-seconds", "1", "--link", link
    )
    assert code == 0
    said = " ".join(out.split())
    assert {
        "hccs": "24 GB/s out, 24 GB/s back, estimated",
        "pcie4x16": "26 GB/s out, 24.6 GB/s back, published",
        "20GB/s": "20 GB/s out, 20 GB/s back, given by you",
    }[link] in said
    assert ("not measured on this machine" in said) == (link != "20GB/s")


def test_a_message_of_mindspore_leads_to_the_plan_with_its_numbers(capsys, tmp_path):
    """A MindSpore message suggests an offload command with the device of the message as budget; the command runs."""
    name, message = mindspore.EXAMPLES[0]
    (tmp_path / "log").write_text(message)
    assert main(["oom", str(tmp_path / "log"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["messages"]
    assert told["dialect"] == name
    changes = [fix["change"] for finding in told["findings"] for fix in finding["fixes"]]
    (command,) = [line for change in changes for line in change.splitlines() if "--policy offload" in line]
    words = command.split()
    assert words[:2] == ["memdiag", "simulate"]
    assert words[words.index("--max-device-memory") + 1] == f"{told['fields']['total_bytes'] // (1 << 30) - 2}GB"
    code, out, _ = run(capsys, *words[2:])
    assert code == 0
    assert "FITS" in out
    assert main(["oom", str(tmp_path / "log")]) == 0
    assert " ".join(words) in " ".join(capsys.readouterr().out.split())


def test_impossible_budgets_say_what_is_missing(capsys):
    code, out, _ = run(capsys, "--policy", "offload", "--max-device-memory", "20MB")
    assert code == 0
    assert "DOES NOT FIT" in out
    assert "more device memory is needed" in out


def test_forced_moves_parameters_only(capsys):
    code, out, _ = run(
        capsys, "--policy", "offload", "--no-auto-offload", "--offload-param", "cpu", "--step-seconds", "1", "--json"
    )
    assert code == 0
    told = json.loads(out)["results"][0]["offload"]
    assert told["strategy"] == "forced"
    assert {each["category"] for each in told["moved"]} <= {"parameter", "optimizer state"}
    assert told["exposed_us_per_step"] > 0  # the forced strategy prefetches no tensor


def test_a_file_of_settings_is_read(capsys, tmp_path):
    (tmp_path / "offload.json").write_text(
        '{"max_device_memory": "70MiB", "offload_config": {"offload_cpu_size": "1GB"}}'
    )
    code, out, _ = run(capsys, "--policy", "offload", "--offload-config", str(tmp_path / "offload.json"), "--json")
    assert code == 0
    assert json.loads(out)["results"][0]["offload"]["host_budget_bytes"] == 1 << 30


def test_rows_and_trace_are_those_of_what_stays(capsys, tmp_path):
    rows, out = tmp_path / "rows.npz", tmp_path / "out.pkl"
    options = ["--policy", "offload", "--max-device-memory", "71MiB", "--step-seconds", "1", "--json"]
    code, printed, _ = run(capsys, *options, "--rows", str(rows), "--out", str(out), "--min-capacity")
    assert code == 0
    result = json.loads(printed)["results"][0]
    events = np.load(rows)
    assert events["reserved"].max() <= result["peak_reserved_bytes"]
    assert main(["analyze", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["devices"][0]["peak"]["reserved_bytes"] == result["peak_reserved_bytes"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--link", "pcie5x16"],
        ["--policy", "offload", "--link", "rope"],
        ["--policy", "offload", "--offload-config", "nowhere.json"],
        ["--policy", "offload", "--no-auto-offload"],
        ["--policy", "ofload"],
    ],
)
def test_wrong_input_is_an_error_with_a_hint(capsys, arguments):
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "hint:" in err
