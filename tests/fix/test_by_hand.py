"""Remedies that memdiag fix leaves to the user: it says why, and names the change."""

import subprocess
from dataclasses import replace

import pytest

from memdiag.fix.by_hand import by_hand
from memdiag.fix.remedies import allocator_settings, eight_bit_optimizer, lifetime_pools
from memdiag.fix.run import case_of
from memdiag.render.fix.terminal import render
from memdiag.results.fix import FixAdvice, FixPeaks, FixReport
from tests.forking import python_with_torch

GIB = 1 << 30


@pytest.fixture(scope="module")
def npu(root):
    return case_of(root / "tests" / "goldens" / "npu-2.13.0-train" / "snapshot.pickle", 4 * GIB)


def test_without_mindspeed_nothing_is_said_about_its_pools(npu):
    assert list(lifetime_pools.propose(npu)) == []


def test_a_mindspeed_without_the_switch_gets_expandable_segments(npu):
    (found,) = lifetime_pools.propose(replace(npu, facts=frozenset({"library mindspeed"})))
    assert "has no MindSpeed with the switch" in str(found.reason)
    assert found.instead == "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"


def test_pools_that_do_not_fit_are_not_recommended(npu):
    facts = frozenset({"library mindspeed", "switch memory-fragmentation"})
    (found,) = lifetime_pools.propose(replace(npu, facts=facts, budget_bytes=1 << 20))
    assert "a request would fail" in str(found.reason)
    assert "expandable_segments" in found.instead


def test_the_recorder_notes_libraries_and_the_size_of_state_elements(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "mindspeed" / "core" / "memory" / "memory_fragmentation").mkdir(parents=True)
    (tmp_path / "mindspeed" / "__init__.py").write_text("")
    program = (
        "import sys, torch\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from memdiag.recorder.fixing import _note_facts\n"
        f"_note_facts(torch, {str(tmp_path)!r})\n"
        "net = torch.nn.Linear(4, 4).bfloat16()\n"
        "optimizer = torch.optim.Adam(net.parameters())\n"
        "net(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()\n"
        "optimizer.step()\n"
    )
    subprocess.run([python_with_torch(), "-c", program], check=True)
    (file,) = tmp_path.glob("*.txt")
    lines = set(file.read_text().splitlines())
    assert {"library mindspeed", "switch memory-fragmentation", "state 2"} <= lines


def test_a_program_that_does_not_fit_is_told_how_to_accumulate_gradients(root):
    case = case_of(root / "examples" / "gpt-train.pickle", GIB)
    found, record = by_hand(case)
    assert found.name == "gradient-accumulation"
    assert "backward" in found.instead
    assert record.instead == "memdiag record -- python train.py"  # a snapshot shows no modules


def test_eight_bit_states_without_the_library(root):
    case = case_of(root / "examples" / "gpt-train.pickle", GIB)
    for found in eight_bit_optimizer.propose(case):
        assert "bitsandbytes" in found.instead


def test_advice_ends_a_sentence_before_the_change():
    peaks = FixPeaks(2 * GIB, 2 * GIB, fits=False)
    advice = (FixAdvice("MD111", "a tensor is still live", "delete it", "del loss"),)
    report = FixReport("train.py", None, GIB, 0, "t", peaks, (), peaks, None, None, None, None, None, (), advice)
    text = " ".join(render(report).split())
    assert "a tensor is still live (MD111). Delete it. Change: del loss" in text
    assert "calibrated" not in text  # nothing is predicted


def test_settings_that_the_recorded_version_refuses_are_not_tried(root, monkeypatch):
    """torch 2.0 has no expandable segments, and ends with an error if they are set."""
    case = case_of(root / "examples" / "gpt-train.pickle", GIB)
    assert len(list(allocator_settings.propose(case))) == 1
    monkeypatch.setattr(type(case.subject), "recorded", replace(case.subject.recorded, torch_version="2.0"))
    assert list(allocator_settings.propose(case)) == []
