"""Logits and the tensors of their loss are found by call stack and size, and layers of that size are left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import logits
from memdiag.analyzers.support.context import Context
from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.stacks import Stacks
from tests.analyzers.page_examples import read_example
from tests.analyzers.test_peak import in_file, numbers, trained
from tests.training import BATCH, LOSS, MAIN, Frame, forward


def findings(trace, **options):
    return {finding.code: finding for finding in logits.analyze(trace, Context(**options))}


def with_logits():
    """Returns a training whose last forward ends with the logits and their loss."""
    program = trained(steps=2)
    program.now += 1
    program.phase = "forward"
    for _ in range(3):
        program.alloc(program.size * 8, LOSS, "activation")
    return program


def test_a_title_names_the_moment_of_its_bytes():
    """The bytes in a title are those at the report's moment, or at an event that the title names."""
    program = with_logits()
    trace = program.trace()
    at = trace.devices[0].peak("allocated")
    assert "of live memory at the peak" in findings(trace)["MD105"].title
    assert f"of live memory at event {at:,} (step 2, outside phases)" in findings(trace, at=1)["MD105"].title


def test_logits_and_their_loss():
    program = with_logits()
    trace = program.trace()
    (device,) = trace.devices
    finding = findings(trace)["MD105"]
    assert finding.severity == "warning"
    assert numbers(finding, "held by the loss")[0][0] >= 24 * program.size
    assert numbers(finding, "allocated at")[0][1] == "train.py:30 loss"
    assert "checkpoint(chunk_loss, x, y" in finding.fixes[0].change
    assert len(finding.fixes) == 1  # no 16-bit tensor that the program converts
    highest_before = int(trained(steps=2).trace().devices[0].usage.allocated.max())
    assert finding.saving.expected_bytes == int(device.usage.allocated.max()) - highest_before + 512  # the loss


def test_only_causal_models_of_transformers_get_the_loss_of_liger():
    """The loss of T5, BERT and other models is not patched: AutoModelForCausalLM does not even load them."""
    program = with_logits()
    trace = in_file(program.trace(), "forward", "/lib/transformers/models/x/modeling_x.py")
    first = {
        name: findings(replace(trace, strings=(*trace.strings, name)))["MD105"].fixes[0].change
        for name in ("LlamaForCausalLM (cross_entropy)", "T5ForConditionalGeneration (cross_entropy)")
    }
    assert ["AutoLigerKernel" in change for change in first.values()] == [True, False]


def test_logits_that_the_loss_found_no_room_for():
    program = trained(steps=2)
    program.now += 1
    program.phase = "forward"
    logits = program.size * 20
    program.alloc(logits, forward(2), "activation")
    program.alloc(logits * 2, (Frame("/app/train.py", 29, "loss"), MAIN), "unknown")  # in float32
    program.fail(logits * 2, LOSS)
    finding = findings(program.trace())["MD105"]
    assert finding.severity == "critical"
    assert numbers(finding, "held by the loss")[0][0] >= 2 * logits
    assert numbers(finding, "failed request of the loss") == [(2 * logits, "train.py:30 loss")]
    assert "float32" in finding.fixes[1].title


def test_layers_as_large_as_the_logits_are_not_logits():
    """Layers of a Sequential have the line of the call of the model, as the loss may."""
    program = trained(steps=2)
    program.now += 1
    program.phase = "forward"
    for layer in range(3):
        program.alloc(program.size * 8, (*forward(layer)[:2], *forward(layer)[3:]), "activation")
    program.phase = "outside"
    program.fail(program.size * 8, (LOSS[0], MAIN))
    finding = findings(program.trace())["MD105"]
    assert numbers(finding, "held by the loss")[0][0] == 8 * program.size + 512  # the loss of the step before
    assert finding.saving is None  # sizes do not distinguish them in other steps


def test_a_copy_of_the_models_output_that_found_no_room():
    program = trained(steps=2, scale=0.25)
    program.now += 1
    program.phase = "forward"
    for kept in (20, 4):
        program.alloc(program.size * kept, forward(2), "activation")
    program.phase = "outside"
    program.fail(program.size * 40, BATCH)
    trace = program.trace()
    (device,) = trace.devices
    phase = np.array([schema.PHASES.index(name) for name in program.phases], np.int8)
    stacks = trace.stacks
    frames = [frame._replace(name="other") if frame.name == "cross_entropy" else frame for frame in stacks.frames]
    trace = replace(
        trace,
        devices=(replace(device, events=device.events.replace(phase=phase)),),
        stacks=Stacks(frames, stacks.offsets, stacks.frame_ids),
    )
    finding = findings(trace)["MD105"]
    assert finding.title.startswith("The model's output")
    assert numbers(finding, "held by the loss") == [(20 * program.size, numbers(finding, "held by the loss")[0][1])]


@pytest.mark.parametrize("loss", ["vanilla", "compiled"])
def test_the_predicted_saving_is_what_a_fused_loss_saves_on_a_real_gpu(loss, shared):
    """The same logits, recorded with PyTorch's loss and with a fused one that never copies them."""
    stem = "mryab__efficient-dl-systems__week06_dl_arithmetic__seminar__cross_entropy"
    traces = [load(shared / f"data/snapshots/{stem}__{name}_ce_snapshot.pickle") for name in (loss, "liger")]
    before, after = (int(trace.devices[0].usage.allocated.max()) for trace in traces)
    assert abs(findings(traces[0])["MD105"].saving.expected_bytes - (before - after)) < 0.001 * before


PAGE_EXAMPLES = {
    "MD105": lambda: read_example(replay=False),
}
