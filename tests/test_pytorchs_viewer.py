"""PyTorch's own viewer (MemoryViz.js, in Chromium) opens every snapshot that memdiag writes, and draws all of it."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.exports import snapshot
from memdiag.exports.model import Wanted
from memdiag.recorder.columns import Unpacker
from memdiag.sources.redacted_file import redact_snapshot
from tests.forking import memdiag_command
from tests.memory_viz import check
from tests.pythons import NO_CUDA, NO_NPU, cuda_python, npu_python

CUDA = Path(__file__).parents[1] / ".venv-cuda" / "bin" / "python"  # created by make test-cuda
EXPORTED = [
    "cuda-2.11.0-pools",
    "cuda-2.13.0-empty",
    "cuda-2.13.0-expandable",
    "cuda-2.13.0-no-trace",
    "cuda-2.13.0-oom",
    "cuda-2.13.0-recorded",
    "cuda-2.13.0-two-devices",
    "npu-2.13.0-recorded",
    "npu-2.13.0-workspace",
]
SIMULATED = [("cpu-2.13.0-recorded", "caching"), ("cuda-2.13.0-recorded", "caching"), ("npu-2.13.0-recorded", "npu")]
TRAINING = """
import sys, torch
device, steps = sys.argv[1], int(sys.argv[2])
if device == "npu":
    import torch_npu
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(steps):
    model(torch.ones(256, 1024, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
kept = []
while steps > 3:
    kept.append(torch.empty(7 << 30, dtype=torch.int8, device=device))
"""


def run(*words: str, cwd: Path, status: int = 0) -> None:
    done = subprocess.run([*memdiag_command(), *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr


@pytest.mark.parametrize("name", EXPORTED)
def test_an_exported_snapshot(name, goldens, tmp_path, pytorchs_viewer):
    (path,) = snapshot.write(memdiag.load(goldens / name / "snapshot.pickle"), tmp_path / "again.pickle", Wanted())
    check(pytorchs_viewer, path)


@pytest.mark.parametrize(("name", "policy"), SIMULATED)
def test_a_simulated_run(name, policy, goldens, tmp_path, pytorchs_viewer):
    path = tmp_path / "simulated.pkl"
    run("simulate", str(goldens / name / "snapshot.pickle"), "--policy", policy, "--out", str(path), cwd=tmp_path)
    found = check(pytorchs_viewer, path)
    assert found[0].tensors > 300


def test_an_older_recording_has_columns_of_bytes_and_is_rewritten_by_redaction(goldens, tmp_path, pytorchs_viewer):
    old, path = goldens / "cuda-2.13.0-recorded" / "snapshot.pickle", tmp_path / "old.pkl"
    path.write_bytes(old.read_bytes())
    before = pickle.loads(old.read_bytes())["memdiag"]
    assert isinstance(before["marks"]["kind"], bytes)
    redact_snapshot(path)
    after = pickle.loads(path.read_bytes())["memdiag"]
    for table in ("marks", "modules", "tensors"):
        unpacker = Unpacker(after[table].values())
        assert {name: unpacker.unpack(column) for name, column in after[table].items()} == before[table]
    check(pytorchs_viewer, path)
    one, two = memdiag.load(old).devices[0], memdiag.load(path).devices[0]
    assert np.array_equal(one.events.phase, two.events.phase)
    assert np.array_equal(one.tensors.category, two.tensors.category)


def python_for(kind: str) -> str:
    """Returns a Python with torch for a kind of phantom device, or skips the test."""
    if kind == "npu":
        return npu_python() or pytest.skip(NO_NPU)
    return cuda_python() or (str(CUDA) if CUDA.exists() else pytest.skip(NO_CUDA))


@pytest.mark.parametrize("options", [(), ("--redact",)], ids=["plain", "redacted"])
@pytest.mark.parametrize("device", ["npu:910b-64g", "cuda:h100-80g"])
def test_a_recording_on_a_phantom_device_that_runs_out_of_memory(device, options, tmp_path, pytorchs_viewer):
    kind = device.partition(":")[0]
    python = python_for(kind)
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    run(
        *options,
        "record",
        "-o",
        "run",
        "--phantom",
        device,
        "--",
        python,
        str(program),
        kind,
        "4",
        cwd=tmp_path,
        status=1,
    )
    (path,) = (tmp_path / "run").glob("rank*.pkl")
    content = pickle.loads(path.read_bytes())
    assert any(entry["action"] == "oom" for entry in content["device_traces"][0])
    found = check(pytorchs_viewer, path)
    assert found[0].tensors > 100
    assert found[0].segments > 8
