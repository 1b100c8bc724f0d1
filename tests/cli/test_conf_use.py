"""``memdiag conf`` as a command: wrong use, exit statuses, its list, the printed text, start-up."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from memdiag.cli.main import main
from tests.cli.test_oom_process import HEAVY


def test_no_settings_is_a_usage_error(capsys):
    assert main(["conf"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: no settings given\nhint: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["a:1", "--env"],
        ["a:1", "--backend", "tpu"],
        ["a:1", "--torch", "new"],
        ["a:1", "--with", "magic"],
        ["a:1", "--platform", "beos"],
        ["a:1", "--fail-on", "ever"],
        ["a:1", "--backend", "cuda", "--torch-npu", "2.6"],
    ],
)
def test_what_cannot_be_done_ends_with_2(arguments, capsys):
    assert main(["conf", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")


@pytest.mark.parametrize(
    ("budget", "status"), [("critical", 0), ("MD656", 1), ("warning", 1), ("MD651", 0), ("md656,MD651", 1)]
)
def test_fail_on(budget, status, capsys):
    assert (
        main(["conf", "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync,max_split_size_mb:64", "--fail-on", budget])
        == status
    )
    capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "status"), [("expandable_segments:True", 0), ("max_split_size_mb:1", 1), ("foo:1", 1)]
)
def test_a_critical_finding_ends_with_1(text, status, capsys):
    assert main(["conf", text]) == status
    assert capsys.readouterr().out.startswith("CRITICAL" if status else "OK")


def test_list(capsys):
    assert main(["conf", "--list"]) == 0
    shown = capsys.readouterr().out
    assert "max_split_size_mb" in shown
    assert "page_size" in shown
    assert main(["conf", "--list", "--backend", "npu", "--torch-npu", "2.6", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    keys = [key["key"] for key in table["backends"][0]["keys"]]
    assert keys == [
        "max_split_size_mb",
        "garbage_collection_threshold",
        "expandable_segments",
        "base_addr_aligned_kb",
        "page_size",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_text_fits_and_ends_with_the_line_to_paste(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["conf", "expandable_segments:true,max_split_size_mb:16,foo:1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("CRITICAL")
    assert lines[-1] == "  export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert max(map(len, lines[:-1])) <= width


def test_nothing_of_the_text_reaches_the_terminal_as_a_command(capsys):
    assert main(["conf", "expandable_segments:\x1b[31mTrue\x07,x\u202ey:1"]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown


def test_nothing_heavy_is_loaded():
    program = (
        "import sys; from memdiag.cli.main import main; main(['conf', 'expandable_segments:True']); "
        "print('\\0'.join(['', *sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.rstrip().split("\0")[1:])
    assert not [name for name in HEAVY if name in loaded]
