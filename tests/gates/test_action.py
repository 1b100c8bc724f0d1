"""The GitHub Action, by its script: on a repository with a pull request, with a stand-in for gh."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import torch


def step(mebibytes):
    return torch.ones(mebibytes << 18)


kept = step({mebibytes})
for _ in range(3):
    step(4)
"""


@pytest.fixture
def pull_request(tmp_path, root):
    """Returns a function that runs the script with a head that allocates this size; the base allocates 24 MiB."""
    folder, tools = tmp_path / "repository", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    scripts = {"memdiag": f'exec "{sys.executable}" -P -m memdiag "$@"', "gh": f'echo "$@" >>"{tmp_path}/gh.txt"'}
    for name, line in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "MEMDIAG_LANG": "en",
        "COMMAND": f"{sys.executable} train.py",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GH_TOKEN": "none",
        "PULL_REQUEST": "7",
        **{f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }

    def shell(*words):
        return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    git = shutil.which("git")

    def commit(mebibytes):
        (folder / "train.py").write_text(PROGRAM.format(mebibytes=mebibytes))
        shell(git, "add", "-A")
        shell(git, "commit", "-q", "--allow-empty", "-m", "x")
        return shell(git, "rev-parse", "HEAD").stdout.strip()

    shell(git, "init", "-q")
    environment["BASE"] = commit(20)

    def run(mebibytes):
        commit(mebibytes)
        done = shell(shutil.which("bash"), str(root / "tools" / "pull_request.sh"))
        assert shell(git, "worktree", "list").stdout.count("\n") == 1
        return done, (tmp_path / "summary.md").read_text(encoding="utf-8"), (tmp_path / "gh.txt").read_text()

    return run


def test_a_pull_request_that_needs_more_memory_fails_with_a_comment(pull_request):
    pytest.importorskip("torch", reason="needs torch, which is recorded")
    done, summary, comment = pull_request(60)
    assert done.returncode == 1, done.stderr
    assert "::error file=train.py,line=6," in done.stderr
    assert "more than in the baseline (24.00 MiB)" in " ".join(summary.split())
    assert "## memdiag" in summary
    assert "train.py:6 step" in summary
    assert comment.startswith("pr comment 7 --edit-last --create-if-none --body-file ")


def test_a_neutral_pull_request_passes(pull_request):
    pytest.importorskip("torch", reason="needs torch, which is recorded")
    done, summary, _ = pull_request(20)
    assert done.returncode == 0, done.stderr
    assert "PASSED" in summary
