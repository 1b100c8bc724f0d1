"""The memdiag fix command that memdiag offers for a run that ran out of memory."""

import json
import shutil
import subprocess

import pytest

from memdiag.runs.fixable import fix_command
from tests.forking import memdiag_command


def run_folder(tmp_path, root, phantom):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(root / "tests" / "goldens" / "cuda-2.13.0-oom-dump" / "snapshot.pickle", folder / "rank0.pkl")
    manifest = {"argv": ["python", "train.py", "a b"], "cwd": str(tmp_path), "phantom": phantom}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_simulated_run_is_fixed_from_its_folder(tmp_path, root, monkeypatch):
    folder = run_folder(tmp_path, root, {"device": "cuda:h100-80g"})
    monkeypatch.chdir(tmp_path)
    assert fix_command(folder / "rank0.pkl") == "memdiag fix run"


def test_a_run_on_a_card_is_fixed_on_a_simulated_device(tmp_path, root):
    folder = run_folder(tmp_path, root, None)
    assert fix_command(folder / "rank0.pkl") == "memdiag fix --phantom DEVICE -- python train.py 'a b'"


def test_a_trace_without_a_run_has_no_command(tmp_path, root):
    folder = run_folder(tmp_path, root, None)
    (folder / "manifest.json").unlink()
    assert fix_command(folder / "rank0.pkl") == ""


@pytest.mark.parametrize("arguments", [["analyze", "run/rank0.pkl"], ["oom", "--from-trace", "run"]])
def test_reports_end_with_the_command(arguments, tmp_path, root):
    run_folder(tmp_path, root, {"device": "cuda:h100-80g"})
    words = [*memdiag_command(), *arguments]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "memdiag: to find changes with which the run fits: memdiag fix run"
