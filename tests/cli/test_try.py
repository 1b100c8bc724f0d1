"""``memdiag try`` reruns the recorded command, and reports prediction and measurement."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memdiag.errors import MemdiagError
from memdiag.runs.rerun import again, find_run
from tests.pythons import NO_NPU, npu_command

ROOT = Path(__file__).parents[2]
MEMDIAG = [sys.executable, "-c", "import sys; from memdiag.cli.main import main; sys.exit(main())"]
NPU = npu_command()

# The program retains a small tensor between every two large ones, so its freed memory is fragmented.
FRAGMENTS = """
import torch, torch_npu
keep = []
for i in range(40):
    large = [torch.empty((24 + (i * 7 + j) % 5 * 9) << 20, dtype=torch.uint8, device="npu") for j in range(6)]
    keep += [torch.empty(3 << 20, dtype=torch.uint8, device="npu"), large.pop()]
    del large
    torch.empty((60 + i) << 20, dtype=torch.uint8, device="npu")
"""


@pytest.fixture
def run(tmp_path):
    """Writes a run's manifest, without traces."""

    def write(**changes):
        folder = tmp_path / "memdiag-1"
        folder.mkdir(exist_ok=True)
        (folder / "rank0.pkl").write_bytes(b"")
        manifest = {
            "argv": ["python", "train.py"],
            "cwd": str(tmp_path),
            "phantom": None,
            "environment": {"NCCL_DEBUG": "INFO", "RANK": "3"},
            "settings": {
                "folder": "/x",
                "file": "",
                "backends": ["npu"],
                "every": 2,
                "max_events": 9,
                "first_step": 0,
                "last_step": None,
            },
        }
        (folder / "manifest.json").write_text(json.dumps({**manifest, **changes}))
        return folder

    return write


def test_it_is_run_as_it_was(run):
    phantom = {"device": "npu:910b-64g,capacity=2GiB", "as_rank": 3, "world": 8}
    order = again(find_run(run(phantom=phantom)), {"PYTORCH_NPU_ALLOC_CONF": "a:b"}, None)
    assert order.command == ("python", "train.py")
    assert (order.phantom, order.as_rank, order.world) == ("npu:910b-64g,capacity=2GiB", 3, 8)
    # the launcher sets the ranks
    assert order.environment == {
        "NCCL_DEBUG": "INFO",
        "PYTORCH_NPU_ALLOC_CONF": "a:b",
    }
    assert order.settings == {"backends": ("npu",), "every": 2, "max_events": 9, "first_step": 0, "last_step": None}


def test_the_short_name_of_a_trace_leads_to_its_run(run, tmp_path):
    folder = run()
    os.link(folder / "rank0.pkl", tmp_path / "trace.pkl")
    assert find_run(tmp_path / "trace.pkl").folder == folder
    assert find_run(folder).folder == folder
    assert find_run(folder / "rank0.pkl").folder == folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"argv": ["python", "train.py", "--hf-token", "(hidden)"]}, "secret"),
        ({"argv": []}, "does not contain the recorded command"),
        ({"argv": None}, "does not contain the recorded command"),
        ({"cwd": "/nowhere/at/all"}, "no longer exists"),
    ],
)
def test_what_cannot_be_run_again(run, changes, said):
    with pytest.raises(MemdiagError, match=said):
        find_run(run(**changes))


def test_a_trace_without_a_run(tmp_path):
    (tmp_path / "trace.pkl").write_bytes(b"")
    with pytest.raises(MemdiagError, match="is not in the folder of its run"):
        find_run(tmp_path / "trace.pkl")


@pytest.mark.skipif(not NPU, reason=NO_NPU)
def test_the_prediction_comes_true(tmp_path):
    """On a simulated device, the prediction is exact to the byte, and a run that had failed now ends normally."""
    (tmp_path / "fragments.py").write_text(FRAGMENTS)
    base = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MEMDIAG_RECORD", "PYTHON", "RANK", "PYTORCH"))
    }

    def memdiag(*words):
        return subprocess.run(
            [*MEMDIAG, *words],
            cwd=tmp_path,
            env={**base, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    first = memdiag("record", "-q", "--phantom", "npu:910b-64g,capacity=2200MiB", "--", NPU, "fragments.py")
    assert first.returncode == 1, first.stderr
    second = memdiag("try", "--conf", "expandable_segments:True")
    assert second.returncode == 0, second.stderr
    (path,) = tmp_path.glob("memdiag-*/try.json")
    result = json.loads(path.read_text())
    (rank,) = result["ranks"]
    assert (rank["predicted_peak_bytes"], rank["error_bytes"]) == (rank["measured_peak_bytes"], 0)
    assert (rank["num_recorded_ooms"], rank["num_predicted_ooms"], rank["num_measured_ooms"]) == (1, 0, 0)
    assert rank["num_shared_allocations"] == rank["num_recorded_allocations"] == 320
    assert rank["predicted_peak_bytes"] < rank["recorded_peak_bytes"]
    assert re.search(r"peak reserved .* 0 B", second.stderr)
    assert rank["outcome"] == "runs_to_its_end"
    assert "memdiag: the run completes; reserved peak " in second.stderr
