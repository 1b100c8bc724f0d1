"""A spawned DataLoader worker that ends with its program is no process whose recording was lost."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch
if __name__ == "__main__":
    batches = iter(torch.utils.data.DataLoader(range(1000), num_workers=1, multiprocessing_context="spawn"))
    torch.ones(next(batches).shape).sum()
    raise ValueError("while the worker works")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_spawned_worker_that_its_program_ends_is_no_lost_process(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "memdiag", "record", "--backend", "cpu", "-o", "run", "--", sys.executable]
    done = subprocess.run(
        [*command, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert "ValueError: while the worker works" in done.stderr
    assert "recorded 1 process" in done.stderr
    assert "ended abnormally" not in done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert len(manifest["processes"]) == 1
