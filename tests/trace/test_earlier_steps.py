"""Lifetimes of tensors live at the end of a trace are inferred from earlier steps and agree with the real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memdiag.analyzers.report import build_report
from memdiag.render.support.words import source_facts
from memdiag.sources import load
from memdiag.text import speaking
from memdiag.trace.annotate import _annotated
from memdiag.trace.evidence import read_stacks
from memdiag.trace.phases import EventPhases, mark
from memdiag.trace.schema import LIFETIMES
from memdiag.trace.spans import lay_out
from memdiag.vocabulary import lifetime as lifetime_words
from tests.training import KEEP, LOSS, MIB, Training

GOLDENS = Path(__file__).parents[1] / "goldens"
CUTS = 8
# Traces of several steps. In most of them the steps differ in length, so that no size occurs in two steps.
NAMES = (
    "cpu-2.13.0-recorded",
    "cuda-2.13.0-recorded",
    "npu-2.13.0-recorded",
    "cuda-2.13.0-train",
    "cuda-2.13.0-expandable",
    "cuda-2.13.0-late",
    "cuda-2.13.0-leak",
    "cuda-2.13.0-oom-dump",
    "cuda-2.13.0-two-devices",
    "npu-2.13.0-train",
    "npu-2.13.0-workspace",
)


def cut(trace, device, at):
    """Returns a device as if its trace ended before event ``at``, and the rows of the tensors that remain."""
    rows = np.flatnonzero(device.tensors.alloc_at < at)
    tensors = device.tensors.take(rows)
    is_live = tensors.free_requested_at >= at
    tensors = tensors.replace(
        free_requested_at=np.where(is_live, at, tensors.free_requested_at),
        free_completed_at=np.where(tensors.free_completed_at >= at, at, tensors.free_completed_at),
        free_stack=np.where(is_live, -1, tensors.free_stack),
        category=np.zeros(len(rows), np.int8),
    )
    events = np.arange(at)
    shorter = replace(device, events=device.events.take(events), usage=device.usage.take(events), tensors=tensors)
    evidence = read_stacks(trace.stacks)
    if trace.bases["phase"] == "marks":
        marks = EventPhases(shorter.events.phase, shorter.events.step, "marks", "marks")
    else:
        marks = mark(shorter, evidence, lay_out(replace(trace, devices=(shorter,)), shorter))
    return _annotated(shorter, marks, evidence, is_cuda=trace.backend == "cuda", planned=()), rows


def judged(trace, cuts=CUTS):
    """Returns the bytes of tensors live at the cuts: all, inferred, of these with a known truth, and correct."""
    found = np.zeros(4, np.int64)
    random = np.random.default_rng(0)
    for device in trace.devices:
        step = device.events.step
        last = np.flatnonzero(step == step.max())
        if len(last) < 100:  # the trace continues a little after the last complete step
            last = np.flatnonzero(step == step.max() - 1)
        truth = np.where(device.tensors.lifetime_inferred, 0, device.tensors.lifetime)
        for at in random.choice(last[1:], cuts, replace=False).tolist():
            shorter, rows = cut(trace, device, at)
            tensors = shorter.tensors
            inferred = tensors.lifetime_inferred
            known = inferred & (truth[rows] > 0)
            right = known & (tensors.lifetime == truth[rows])
            live = tensors.free_requested_at >= at
            assert not (inferred & ~live).any()
            found += [int(tensors.block_bytes[mask].sum()) for mask in (live, inferred, known, right)]
    return found


def test_inferred_lifetimes_are_correct():
    found = np.array([judged(load(GOLDENS / name / "snapshot.pickle")) for name in NAMES])
    _, inferred, known, right = found.sum(axis=0)
    assert right >= 0.95 * known
    assert known >= 0.9 * inferred
    assert (found[:, 3] >= 0.9 * found[:, 2]).all(), dict(zip(NAMES, found.tolist(), strict=True))


def test_inferred_lifetimes_of_real_trainings_are_correct(shared):
    files = [
        *(shared / "data" / "npu-samples").glob("*.pickle"),
        *(shared / "data" / "snapshots").glob("NiuHuang*backward*"),
    ]
    files += (shared / "data" / "snapshots").glob("tonghuikang*.html")
    traces = [load(file) for file in files]
    found = [judged(trace) for trace in traces if trace.devices[0].events.step.max(initial=-1) > 1]
    assert len(found) >= 5
    live, inferred, known, right = np.sum(found, axis=0)
    assert inferred >= 0.2 * live
    assert right == known


def failing(steps, **options):
    """Returns the device of a training that fails at the end of the forward of its last step."""
    program = Training()
    program.initialise()
    for _ in range(steps):
        program.step(**options)
    program.step(until="forward")
    program.fail(1 << 41)
    return program.trace().devices[0]


def lives(device, rows):
    return [LIFETIMES[code] for code in device.tensors.lifetime[rows]]


def activations(device):
    """Returns the rows of the tensors that the last forward left live."""
    tensors = device.tensors
    return np.flatnonzero((tensors.step_alloc == tensors.step_alloc.max()) & (tensors.requested_bytes == 8 * MIB))


def test_activations_at_a_failure_have_the_lifetime_of_earlier_steps():
    device = failing(3)
    assert lives(device, activations(device)) == ["forward_to_backward"] * 3
    assert device.tensors.lifetime_inferred[activations(device)].all()


def test_nothing_is_inferred_without_a_completed_step():
    device = failing(0)
    assert lives(device, activations(device)) == ["unknown"] * 3
    assert not device.tensors.lifetime_inferred.any()


def test_steps_of_another_length_are_inferred_by_their_call_sites():
    device = failing(3, scale=0.75)
    assert lives(device, activations(device)) == ["forward_to_backward"] * 3


def looping(freed_after):
    """Returns the device of a loop that allocates one tensor per step and ends with a live one.

    The tensor of each step is freed after the number of steps in ``freed_after``.
    """
    program = Training()
    program.initialise()
    kept = []
    for step, after in enumerate(freed_after):
        program.step()
        program.phase = "outside"
        kept.append((step + after, program.alloc(3 * MIB, KEEP, "unknown")))
        for until, addr in [pair for pair in kept if pair[0] == step]:
            program.passing(512, KEEP)
            program.free(addr)
            kept.remove((until, addr))
    program.step(until="backward")
    program.alloc(3 * MIB, KEEP, "unknown")
    return program.trace().devices[0]


@pytest.mark.parametrize(
    ("freed_after", "lifetime"), [([1] * 6, "survives_step"), ([0] * 6, "temporary"), ([0, 1, 0, 1, 0, 1], "unknown")]
)
def test_a_mixed_vote_leaves_a_lifetime_unknown(freed_after, lifetime):
    device = looping(freed_after)
    rows = np.flatnonzero(device.tensors.requested_bytes == 3 * MIB)[-1:]
    assert lives(device, rows) == [lifetime]


def test_a_tensor_that_outlived_all_similar_ones_stays_unknown():
    program = Training()
    program.initialise()
    for _ in range(4):
        program.step()
        program.passing(3 * MIB, KEEP)
    program.step(until="forward")
    kept = len(program.truth)
    program.alloc(3 * MIB, KEEP, "unknown")
    program.alloc(512, LOSS, "activation")
    program.fail(1 << 41)
    device = program.trace().devices[0]
    born = np.flatnonzero(device.tensors.alloc_at >= 0)
    born = born[np.argsort(device.tensors.alloc_at[born])]
    assert lives(device, born[kept : kept + 1]) == ["unknown"]


def test_loops_without_stacks_or_phases_are_inferred_by_sizes():
    program = Training()
    program.initialise()
    for _ in range(8):
        program.step()
    program.step(until="forward")
    trace = program.trace(stacks=False)
    assert trace.bases["lifetime"] == "periodicity+earlier_steps"
    device = trace.devices[0]
    # the batch and the output
    assert lives(device, np.flatnonzero(device.tensors.lifetime_inferred)) == ["survives_step", "survives_step"]
    assert lives(device, activations(device)) == ["unknown"] * 3  # some gradients have the same size


def test_reports_say_that_lifetimes_were_inferred():
    program = Training()
    program.initialise()
    for _ in range(3):
        program.step()
    program.step(until="forward")
    program.fail(1 << 41)
    report = build_report(program.trace())
    assert report.source.bases["lifetime"] == "stacks+earlier_steps"
    (note,) = [note.text for note in report.notes if note.code == "MD920"]
    assert "lifetimes of tensors that are still live at the end from the same call site in earlier steps" in note
    assert (
        "lifetimes of tensors that are live at the end of the trace: inferred from the same call site in earlier steps"
        in {fact.key: fact.value for fact in source_facts(report)}["known"]
    )


def test_an_inferred_lifetime_is_marked_in_both_languages():
    assert lifetime_words("within_step", is_inferred=False) == "within a step"
    assert (
        lifetime_words("within_step", is_inferred=True)
        == "within a step (inferred from the same call site in earlier steps)"
    )
    with speaking("zh"):
        assert "由先前训练步中的同一调用位置推断" in lifetime_words("within_step", is_inferred=True)
