"""Recordings of many kinds of programs: several models, caught errors, two processes, compiled models, CUDA graphs."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def test_two_models_and_two_optimizers_are_recorded(record, compare):
    found = compare(record("gan.py", "{out}", record.device))
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


def test_exceptions_of_the_program_are_unchanged(record, compare):
    """The program's own exceptions reach it unchanged, and the steps after them are recorded correctly."""
    run = record("faults.py", "{out}", record.device)
    said = ["in forward", "in backward", "in a hook", "before the step", "after forward"]
    assert [line for line in run.done.stdout.splitlines() if "Warning" not in line] == said
    assert "memdiag:" not in run.done.stderr
    found = compare(run)
    assert found.wrong_phases() == []
    assert found.wrong_tensors() == []


@pytest.mark.parametrize(("start", "way"), [("spawn", "copies"), ("spawn", "views"), ("torchrun", "fsdp")])
def test_two_processes_are_recorded(cpu, compare, way, start):
    script = [] if start == "spawn" else ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    program = [str(PROGRAMS / "ddp.py")] if script else ["ddp.py"]
    run = cpu(*script, *program, "{out}", way)
    if "cannot be tried" in run.done.stdout:
        pytest.skip("this torch has no FSDP2")
    out = run.folder.parent / "truth.json"
    for rank in range(2):
        truth = json.loads(out.with_name(f"truth.json.{rank}").read_text())
        found = compare(replace(run, truth=truth), rank)
        # A thread of gloo frees the buffers of its collectives, usually unseen by the profiler.
        assert found.overlapping() == []
        assert found.wrong_phases() == []
        assert found.wrong_tensors(views=way != "copies") == []


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model_is_recorded(cpu, compare, backend, tmp_path):
    """Recording adds no graph breaks and no graphs to a compiled model, whose inner layers are not distinguished."""
    if backend == "inductor" and shutil.which("c++") is None:
        pytest.skip("Inductor compiles for the CPU with a C++ compiler (c++): there is none")
    settings = ["--compile", backend, "--plain", "--steps", "2"]
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled")}
    with_us = cpu.train(*settings, env=env)
    if "PyTorch's profiler lost its recording" in with_us.done.stderr and with_us.trace.torch_version.startswith(
        "2.1."
    ):
        pytest.skip("the profiler of torch 2.1 cannot follow the compiler's calls")
    # PyTorch uses the latter two words when its profiler loses track.
    assert not re.search("memdiag:|PythonTracer|callback", with_us.done.stderr)
    if backend == "aot_eager":  # the graphs are the same as Inductor's, and compile faster
        without = cpu.train(*settings, recorded=False, env=env)
        assert with_us.truth["dynamo"] == without.truth["dynamo"]
        assert with_us.truth["random"] == without.truth["random"]
        assert with_us.truth["sum"] == without.truth["sum"]
    found = compare(with_us)
    assert found.wrong_phases() == []
    assert found.wrong_tensors(("parameter", "gradient", "optimizer_state")) == []
    events = found.device.events
    assert (events.stack[events.step == 1] >= 0).all()  # the step after the compiling one has its stacks


def test_cuda_graphs_are_recorded(accelerator, compare):
    if accelerator.device != "cuda":
        pytest.skip("graphs of CUDA")
    run = accelerator("graphs.py", "{out}")
    assert run.done.stderr == ""
    assert compare(run).wrong_tensors() == []


def test_parameters_without_a_module_and_lazy_ones_are_recorded(accelerator, compare):
    run = accelerator("plain.py", "{out}", accelerator.device)
    assert "memdiag:" not in run.done.stderr
    assert compare(run).wrong_tensors() == []
