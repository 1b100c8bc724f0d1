"""memdiag fix names what is wrong with its input."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "0", "--", sys.executable, "-c", ""], "not a size: '0'"),
        (["--values", "auto", "--", sys.executable, "-c", ""], "--values needs --phantom"),
        (["--phantom", "cuda:h100-80g", "--selected", "0..1", "--", sys.executable], "cannot plan for the range"),
        (["--budget", "1GiB", "--", sys.executable, "-Sc", "raise SystemExit(3)"], "ended with status 3 before"),
    ],
)
def test_wrong_input(tmp_path, words, said):
    command = [sys.executable, "-m", "memdiag", "fix", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
