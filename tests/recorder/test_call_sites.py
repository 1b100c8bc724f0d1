"""Findings name the calls of the program whose effects have no call stack: backward passes and memory limits."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from memdiag.analyzers import fragmentation
from memdiag.analyzers.support.context import Context
from memdiag.recorder.call_sites import calling_line
from memdiag.recorder.marks import NOWHERE, Marks
from memdiag.sources.run_facts import calls_in

PROGRAM = """
import torch
home = torch.{device}

def train(model, optimizer):
    for _ in range(3):
        model(torch.randn(64, 256, device="{device}")).sum().backward()
        optimizer.step()

home.set_per_process_memory_fraction(0.01)
model = torch.nn.Linear(256, 256, device="{device}")
train(model, torch.optim.SGD(model.parameters()))
try:
    torch.empty(8 << 30, dtype=torch.uint8, device="{device}")
except torch.OutOfMemoryError:
    pass
"""


def test_the_line_outside_libraries_is_named():
    assert calling_line(sys._getframe()).endswith(" test_the_line_outside_libraries_is_named")
    assert calling_line(None) == ""


def test_code_of_libraries_is_skipped():
    found = {"find": calling_line, "frame": sys._getframe}
    exec(compile("def library():\n    return find(frame())", "site-packages/lib/run.py", "exec"), found)  # noqa: S102
    assert found["library"]().endswith(" test_code_of_libraries_is_skipped")


def test_calls_are_counted_by_line():
    marks = Marks(lambda: NOWHERE)
    for line in ("train.py:5 train", "train.py:5 train", "", "eval.py:2 test"):
        marks.called("backward", line)
    assert marks.content()["calls"] == {"backward": {"train.py:5 train": 2, "eval.py:2 test": 1}}


@pytest.mark.parametrize(
    "given", [None, {"backward": []}, {"backward": {5: 1, "a": -1, "\x1b": 2}}, {"other": {"a": 1}}]
)
def test_damaged_calls_are_ignored(given):
    assert not any(calls_in({"calls": given}).values())


def test_a_recording_has_the_lines(accelerator, tmp_path):
    program = tmp_path / "limited.py"
    extra = "import torch_npu\n" if accelerator.device == "npu" else "\n"
    program.write_text(extra + PROGRAM.format(device=accelerator.device))
    trace = accelerator(str(program)).trace
    assert trace.recorded.line_of("backward") == "limited.py:8 train"
    assert trace.recorded.calls["backward"] == {"limited.py:8 train": 3}
    line = "limited.py:11 <module>"
    assert trace.recorded.line_of("set_per_process_memory_fraction") == line
    (finding,) = [found for found in fragmentation.analyze(trace, Context()) if found.code == "MD206"]
    assert line in finding.title
    assert line in {row.value for row in finding.evidence}
    unknown = replace(trace, recorded=replace(trace.recorded, calls={}))
    assert "at a limit of this process:" in next(iter(fragmentation.analyze(unknown, Context()))).title
