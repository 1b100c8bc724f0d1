"""``--values auto`` runs a command again only if values that no kernel computed may have ended it."""

from __future__ import annotations

import json
import subprocess

import pytest

from memdiag.cli.main import main
from memdiag.recorder.launch import ProgramEnd
from memdiag.recorder.run_folder import RunFolder, clear
from memdiag.runs.finishing import FinishedRun
from memdiag.runs.recording import Order
from memdiag.runs.unsupported import unsupported_code
from memdiag.runs.values_auto import _choices, culprit_of
from tests.forking import memdiag_command
from tests.phantom.cuda_stand_in import PYTHON, needs_torch

READ = {"count": 3, "last": "train.py:7", "values": "zeros", "auto": True}
FAILED = {"pid": 1, "exception": "builtins.ValueError: not three", "synthetic": READ, "ended": 5}
UNSUPPORTED = (
    "RuntimeError: NPU contiguous operator only supported contiguous memory format.\n"
    "[ERROR] 2026-11-29-10:25:56 (PID:2969, Device:0, RankID:-1) ERR01007 OPS feature not supported"
)
# By default, products of matrices are not computed. With --compute small, they are, but not the mean of a large tensor.
PROGRAM = """
import math, sys, torch
small = torch.eye(4, device="cuda") @ torch.ones(4, device="cuda") * 3
if small.mean().item() != 3:
    raise ValueError("not three")
large = torch.empty(1 << 22, device="cuda").normal_()
print(math.log(large.abs().mean().item()))
"""


def run_of(*processes):
    return FinishedRun(RunFolder("run", ""), (), processes, None, (), any_python=True, phantom=True)


def test_the_process_with_the_exception_names_the_place():
    other = {**FAILED, "exception": None, "synthetic": {**READ, "last": "other.py:1"}, "ended": 4}
    culprit = culprit_of(run_of(other, FAILED), ProgramEnd(1, 0.0))
    assert culprit is not None
    assert (culprit.where, culprit.count, culprit.how) == ("train.py:7", 3, "failed")


def test_a_process_that_waited_for_a_value_is_named():
    waiting = {"pid": 1, "waited": {**READ, "last": "loop.py:3"}}
    culprit = culprit_of(run_of(waiting), ProgramEnd(-15, 0.0))
    assert culprit is not None
    assert (culprit.where, culprit.how) == ("loop.py:3", "waited")


def test_sizes_that_were_assumed_are_named_if_no_value_was_read():
    sizes = {"count": 2, "last": "train.py:9", "auto": True}
    culprit = culprit_of(run_of({**FAILED, "synthetic": None, "assumed_sizes": sizes}), ProgramEnd(1, 0.0))
    assert culprit is not None
    assert (culprit.where, culprit.count, culprit.how) == ("train.py:9", 2, "sizes")
    read = culprit_of(run_of({**FAILED, "assumed_sizes": sizes}), ProgramEnd(1, 0.0))
    assert read is not None
    assert read.how == "failed"


@pytest.mark.parametrize(
    ("process", "ended"),
    [
        (FAILED, ProgramEnd(0, 0.0)),
        (FAILED, ProgramEnd(-2, 0.0, [2])),
        ({**FAILED, "synthetic": None}, ProgramEnd(1, 0.0)),
        ({**FAILED, "exception": "torch.OutOfMemoryError: CUDA out of memory. Tried …"}, ProgramEnd(1, 0.0)),
        (
            {**FAILED, "exception": "RuntimeError: the phantom device cannot imitate cudaIpcGetMemHandle"},
            ProgramEnd(1, 0.0),
        ),
        ({**FAILED, "exception": UNSUPPORTED}, ProgramEnd(1, 0.0)),
        (
            {**FAILED, "exception": "builtins.TypeError: make_grid() got an unexpected keyword argument 'range'"},
            ProgramEnd(1, 0.0),
        ),
    ],
    ids=["success", "signal", "nothing read", "out of memory", "not simulated", "not supported by torch_npu", "code"],
)
def test_other_ends_are_answers(process, ended):
    assert culprit_of(run_of(process), ended) is None


def test_errors_of_torch_npu_about_other_things_may_depend_on_values():
    error = UNSUPPORTED.replace("ERR01007 OPS feature not supported", "ERR01003 OPS invalid value")
    assert unsupported_code(UNSUPPORTED) == "ERR01007"
    assert unsupported_code(error) == ""
    assert culprit_of(run_of({**FAILED, "exception": error}), ProgramEnd(1, 0.0)) is not None


def test_tensors_are_computed_before_other_values_are_tried():
    options = [choice.options for choice in _choices(Order(("python",)))]
    assert options[:4] == ["", "--compute small", "--values finite --compute small", "--compute small=64MiB"]
    given = Order(("python",), environment={"MEMDIAG_PHANTOM_COMPUTE": "1000"})
    assert [choice.options for choice in _choices(given)] == [
        "",
        "--values finite",
        "--values ones",
        "--values random",
    ]


def test_the_files_of_a_repeated_run_are_removed_and_others_stay(tmp_path):
    for name in ("rank0.pkl", "rank0.json", "manifest.json", "results.txt"):
        (tmp_path / name).write_text("{}")
    clear(RunFolder(str(tmp_path), ""))
    assert [path.name for path in tmp_path.iterdir()] == ["results.txt"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--values", "auto"], "needs --phantom"),
        (["--values", "auto", "--phantom", "cuda:h100-80g", "--find-max", "x=1..2"], "cannot be combined"),
    ],
)
def test_what_auto_needs(options, said, capsys):
    assert main(["record", *options, "--", "true", "{x}"]) == 2
    assert said in capsys.readouterr().err


@needs_torch
def test_the_first_setting_that_works_is_named_and_recorded(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["record", "--phantom", "cuda:h100-80g", "--values", "auto", "-o", "run", "--", PYTHON, "program.py"]
    done = subprocess.run([*memdiag_command(), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "0.0\n"), done.stderr
    assert (
        "program.py:4, where it read 0 (or False); memdiag runs the command again with --compute small" in done.stderr
    )
    assert "program.py:7, where" in done.stderr
    assert "and the program reads finite numbers for other results" in done.stderr
    assert "the program runs with --values finite --compute small" in done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["environment"]["MEMDIAG_PHANTOM_VALUES"] == "finite"
    assert sorted(path.suffix for path in (tmp_path / "run").iterdir()) == [".json", ".json", ".pkl"]


SIZES = """
import torch
chosen = torch.eye(16, device="cuda") @ torch.arange(16.0, device="cuda")
if chosen[chosen > 11].shape[0] != 4:
    raise ValueError("not four")
large = torch.empty(1 << 22, device="cuda").normal_()
print(large[large > 100].shape[0])
"""


@needs_torch
def test_a_failure_after_assumed_sizes_is_repeated_with_settings_that_compute_more(tmp_path):
    (tmp_path / "sizes.py").write_text(SIZES)
    words = ["record", "--phantom", "cuda:h100-80g", "--values", "auto", "-o", "run", "--", PYTHON, "sizes.py"]
    done = subprocess.run([*memdiag_command(), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "4194304\n"), done.stderr
    assert "memdiag assumed 1 size that depends on values" in done.stderr
    assert "sizes.py:4; memdiag runs the command again with --compute small\n" in done.stderr


@needs_torch
def test_settings_that_compute_no_more_do_not_change_assumed_sizes(tmp_path):
    (tmp_path / "sizes.py").write_text(SIZES + "raise ValueError('another cause')\n")
    words = ["record", "--phantom", "cuda:h100-80g", "--values", "auto", "-o", "run", "--", PYTHON, "sizes.py"]
    done = subprocess.run([*memdiag_command(), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "--values" not in done.stderr.replace("--values auto", ""), done.stderr
    assert "every setting of --values auto (--compute small, --compute small=64MiB)" in done.stderr


LOOP = """
import torch
state = torch.ones(4, device="cuda")
while True:
    state = torch.eye(4, device="cuda") @ state * 2
    if state.sum().item() > 100:
        break
print("done", state.shape[0])
"""


@needs_torch
def test_a_program_that_loops_is_told_the_value_it_waits_for_and_runs_with_another_setting(tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    words = ["record", "--phantom", "cuda:h100-80g", "--values", "auto", "-o", "run", "--", PYTHON, "loop.py"]
    done = subprocess.run([*memdiag_command(), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done 4\n"), done.stderr
    assert "memdiag: no training step ended in 3" in done.stderr
    ended = next(line for line in done.stderr.splitlines() if "ended the program, because it waited" in line)
    assert "the last one at " in ended
    assert "loop.py:6, where it read 0 (or False); memdiag runs the command again with --compute small" in ended
    assert "the program runs with --compute small: use these options" in done.stderr


@needs_torch
def test_the_message_after_a_failure_names_the_value_its_line_and_the_setting(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = ["record", "--phantom", "cuda:h100-80g", "-o", "run", "--", PYTHON, "program.py"]
    done = subprocess.run([*memdiag_command(), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    summary = done.stderr[done.stderr.index("ValueError: not three") :]
    text = " ".join(summary.split())
    assert "program.py:4" in text
    assert "0 (or False)" in text
    assert "--values auto" in text
