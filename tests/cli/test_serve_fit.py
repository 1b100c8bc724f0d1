"""``memdiag serve-fit``: its forms and wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memdiag.cli.main import main

TOY = str(Path(__file__).parents[1] / "serving" / "models" / "toy")


def printed(capsys, *arguments, status=0):
    assert main(["serve-fit", TOY, "--device", "a100-40g", *arguments]) == status
    return capsys.readouterr()


def test_it_prints_the_sizes_and_the_flags(capsys):
    out = printed(capsys).out
    assert "--tensor-parallel-size 1 --gpu-memory-utilization 0.9" in out
    assert "65,536" in out
    out = printed(capsys, "--engine", "sglang", "--eager", "--kv-dtype", "fp8", "--lang", "zh").out
    assert "--mem-fraction-static" in out
    assert "--disable-cuda-graph" in out


def test_json_sums_up_to_the_card(capsys):
    report = json.loads(printed(capsys, "--json", "--tp", "1,3,16").out)
    assert [plan["tp"] for plan in report["plans"]] == [1, 16]  # 3 does not divide 16 heads
    assert all(sum(part["bytes"] for part in plan["parts"]) == report["card_bytes"] for plan in report["plans"])


def test_markdown_has_the_table_and_the_flags(capsys, tmp_path):
    out = printed(capsys, "--md").out
    assert "\n```\n--tensor-parallel-size 1 --gpu-memory-utilization 0.9" in out
    table = [line.count("|") for line in out.splitlines() if line.startswith("|")]
    assert table == [8] * 6
    printed(capsys, "-o", str(tmp_path / "plan.md"))
    assert (tmp_path / "plan.md").read_text(encoding="utf-8") == out
    assert "hint:" in printed(capsys, "--md", "--json", status=2).err


def test_markdown_says_if_nothing_fits(capsys):
    out = printed(capsys, "--md", "--max-num-seqs", "100000").out
    assert "```" not in out
    assert "memdiag serving" not in out  # there is no first start to verify
    assert [line.count("|") for line in out.splitlines() if line.startswith("|")] == [8] * 6


@pytest.mark.parametrize(
    "arguments",
    [
        ("--engine", "tgi"),
        ("--kv-dtype", "int3"),
        ("--tp", "1,x"),
        ("--tp", "0"),
        ("--tp", ""),
        ("--tp", "3,5"),
        ("--context", "100000000"),
    ],
)
def test_wrong_options_are_errors_with_a_hint(capsys, arguments):
    assert "hint:" in printed(capsys, *arguments, status=2).err


def test_a_request_of_no_tokens_is_refused(capsys):
    assert "--context" in printed(capsys, "--context", "0", status=2).err
