"""The commands of docs/tutorial.md run in order, and print the lines shown on the page in the same order."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.forking import memdiag_command
from tests.pythons import NO_NPU, npu_command

OMITTED = "…"
_BLOCK = re.compile(r"```console\n\$ (memdiag [^\n]*)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def commands(root) -> list[tuple[str, list[str]]]:
    """Returns the commands of the page, each with the lines shown for it."""
    blocks = _BLOCK.findall((root / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    return [
        (command, [line for line in shown.splitlines() if line.strip() not in {"", OMITTED}])
        for command, shown in blocks
    ]


def missing(root: Path, folder: Path, command: str, shown: list[str]) -> list[str]:
    """Returns the lines of ``shown`` that the command does not print, or not in this order."""
    text = command.replace("memdiag ", f"{' '.join(memdiag_command())} ", 1).replace(
        ".venv-npu/bin/python", npu_command() or "python"
    )
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(root)}
    done = subprocess.run(
        text.split(),
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    printed = iter([line.rstrip() for line in done.stdout.splitlines()])
    return [line for line in shown if line not in printed]  # "in" advances the iterator, so the order counts


@pytest.fixture
def folder(root, tmp_path) -> Path:
    (tmp_path / "examples").symlink_to(root / "examples")
    return tmp_path


def test_the_tutorial_has_the_five_steps(commands):
    assert [command.split()[1] for command, _ in commands] == ["oom", "record", "analyze", "simulate", "try"]
    assert all(shown for _, shown in commands)


def test_the_message_is_explained_as_shown(root, folder, commands):
    assert missing(root, folder, *commands[0]) == []


@pytest.mark.skipif(not npu_command(), reason=NO_NPU)
def test_the_run_is_recorded_explained_and_fixed_as_shown(root, folder, commands):
    assert {command: lines for command, shown in commands[1:] if (lines := missing(root, folder, command, shown))} == {}
