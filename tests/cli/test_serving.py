"""``memdiag serving``: its forms, its input, and the pointer to it in ``memdiag oom``."""

from __future__ import annotations

import io
import json
from pathlib import Path

from memdiag.cli.main import main

LOGS = Path(__file__).parents[1] / "serving" / "logs"
FAILED = str(LOGS / "vllm_capture_fails.log")


def printed(capsys, *arguments, status=0):
    assert main(list(arguments)) == status
    return capsys.readouterr()


def test_the_terminal_form_has_the_account_and_the_flags(capsys):
    out = printed(capsys, "serving", FAILED).out
    assert "24.00 GiB, the whole card" in out
    assert "KV cache" in out
    assert "--gpu-memory-utilization 0.94" in out


def test_json_sums_up_and_markdown_has_the_same_rows(capsys):
    report = json.loads(printed(capsys, "serving", FAILED, "--json").out)
    (card,) = report["cards"]
    assert sum(part["bytes"] for part in card["parts"]) == card["total_bytes"] == 24 << 30
    assert report["failure"]["fixes"][0]["change"] == "--gpu-memory-utilization 0.94"
    text = printed(capsys, "serving", FAILED, "--md").out
    assert "| weights | 16.00 GiB |" in text


def test_it_speaks_chinese(capsys):
    assert "KV 缓存" in printed(capsys, "serving", FAILED, "--lang", "zh").out


def test_a_pipe_and_a_device(capsys, monkeypatch):
    data = (LOGS / "vllm_v1.log").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)), encoding="utf-8"))
    out = printed(capsys, "serving", "-", "--device", "a100-40g").out
    assert "computed with --device" in out


def test_wrong_input_is_an_error_with_a_hint(capsys, tmp_path):
    path = tmp_path / "empty.log"
    path.write_text("", encoding="utf-8")
    assert "hint: memdiag reads the logs of" in printed(capsys, "serving", str(path), status=2).err
    assert "error:" in printed(capsys, "serving", str(tmp_path / "none.log"), status=2).err
    assert "error:" in printed(capsys, "serving", FAILED, "--device", "no-such-card", status=2).err
    assert "error:" in printed(capsys, "serving", FAILED, "-o", FAILED, status=2).err


def test_oom_points_to_the_account_of_a_servers_log(capsys, tmp_path):
    assert f"memdiag serving {FAILED}" in printed(capsys, "oom", FAILED).err
    path = tmp_path / "train.log"
    path.write_text("CUDA out of memory. Tried to allocate 1.00 GiB.\n", encoding="utf-8")
    assert "memdiag serving" not in printed(capsys, "oom", str(path)).err
