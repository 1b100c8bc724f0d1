"""``memdiag record`` with the real torch, and from Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from memdiag.recorder import run_folder
from memdiag.runs import summary
from memdiag.runs.chosen import choose_trace
from memdiag.runs.recording import Order, perform
from tests.cli.conftest import FAKE_TORCH
from tests.pythons import finds_device

PYTHON = sys.executable


TRAIN = "import torch; torch.empty(1000); torch.step(); torch.empty(2000); "


def real_torch():
    """Returns a Python with torch, this one or MEMDIAG_TEST_TORCH_PYTHON; skips without one."""
    named = os.environ.get("MEMDIAG_TEST_TORCH_PYTHON")
    python = named or PYTHON
    if not named and subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip("needs torch here, or a Python with it in MEMDIAG_TEST_TORCH_PYTHON")
    return python


def the_run(folder):
    (run,) = Path(folder).glob("memdiag-*")
    return run


def test_training_on_the_cpu(record, tmp_path):
    python = real_torch()
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            model(torch.randn(32, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """)
    )
    done = record(python, "train.py", fake=False)
    assert done.returncode == 0, done.stderr
    assert "recorded 1 process, 3 training steps" in done.stderr
    assert "optimizer state" in done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_leave_no_files(record, tmp_path, method):
    python = real_torch()
    (tmp_path / "load.py").write_text(
        textwrap.dedent(f"""
        import torch
        class Numbers(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): return torch.full((100,), float(index))
        if __name__ == "__main__":
            loader = torch.utils.data.DataLoader(Numbers(), num_workers=1, multiprocessing_context={method!r})
            print(sum(batch.sum().item() for batch in loader))
        """)
    )
    done = record(python, "load.py", fake=False)
    assert done.stdout == "600.0\n", done.stderr
    assert [Path(path).name for path in run_folder.traces(str(the_run(tmp_path)))] == ["rank0.pkl"]


def test_a_failure_on_an_accelerator_is_explained(record, tmp_path):
    if not (python := os.environ.get("MEMDIAG_TEST_CUDA_PYTHON")) or not finds_device((python,), "cuda"):
        pytest.skip("needs a Python whose torch finds a CUDA device: name it in MEMDIAG_TEST_CUDA_PYTHON")
    program = "import torch; keep = []\nwhile True: keep.append(torch.empty(1 << 30, dtype=torch.uint8, device='cuda'))"
    done = record(shutil.which(python), "-c", program, fake=False, options=["-o", str(tmp_path / "run")])
    assert done.returncode == 1
    assert "OUT OF CAPACITY" in done.stderr
    assert "reason for writing: oom" in done.stderr
    assert "memdiag record --phantom DEVICE" in done.stderr


def test_a_run_is_recorded_and_summarized_from_python(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", str(FAKE_TORCH))
    done = perform(Order((PYTHON, "-c", TRAIN), {"backends": ("cpu",)}, str(tmp_path / "run"), has_short_name=False))
    assert done.ended.status == 0
    assert done.run is not None
    found = summary.with_memory(summary.summarize(done.run, done.ended), done.ended)
    assert found.chosen is not None
    assert found.chosen["trace"] == str(tmp_path / "run" / "rank0.pkl")
    assert found.memory is not None
    assert found.memory.report is not None
    assert capfd.readouterr() == ("", "")


def test_a_trace_is_chosen_from_python(tmp_path, capsys):
    run = tmp_path / "memdiag-1"
    run.mkdir()
    for rank in (0, 3):
        (run / f"rank{rank}.pkl").write_bytes(b"")
    heard = []
    assert choose_trace(run, 3, heard.append) == run / "rank3.pkl"
    assert "rank 3 of 2 ranks" in heard[0]
    assert choose_trace(tmp_path) == run / "rank0.pkl"
    assert capsys.readouterr().err == ""
