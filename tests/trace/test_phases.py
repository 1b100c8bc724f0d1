"""Phases and steps of events agree with a simulated training of which every event is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.annotate import BASES, annotate
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.evidence import OTHER, SILENT, read_stacks
from memdiag.trace.raw import RawDevice
from memdiag.trace.schema import CATEGORIES, LIFETIMES, PHASES
from memdiag.trace.stacks import Frame, Stacks
from tests.trace.trainings import NO_FRAMES, born, names, trained
from tests.training import KEEP, MIB, Training


def wrong(device, program, column, place):
    """Returns a pair (truth, inferred) for each tensor whose inferred value is wrong."""
    rows = born(device)
    table = CATEGORIES if column == "category" else PHASES
    pairs = zip([t[place] for t in program.truth], names(table, device.tensors[column][rows]), strict=True)
    return [pair for pair in pairs if pair[0] != pair[1]]


@pytest.mark.parametrize("zero_first", [False, True])
def test_every_tensor_has_its_phase_category_and_step(zero_first):
    program = trained(zero_first=zero_first)
    trace = program.trace()
    device = trace.devices[0]
    assert wrong(device, program, "phase_alloc", 1) == []
    assert wrong(device, program, "category", 0) == []
    assert device.tensors.step_alloc[born(device)].tolist() == [step for _, _, step in program.truth]
    assert dict(trace.bases) == {**dict.fromkeys(BASES, "stacks"), "lifetime": "stacks+earlier_steps"}


def test_every_event_has_the_phase_in_which_it_happened():
    program = trained()
    phase = program.trace().devices[0].events.phase
    differing = [i for i, truth in enumerate(program.phases) if PHASES[phase[i]] != truth]
    # Frees before the first allocation of a phase are attributed to the previous phase.
    assert all(program.entries[i][0].startswith("free") for i in differing)
    assert len(differing) < 0.05 * len(program.phases)


def test_zero_grad_after_the_optimizer_belongs_to_its_step():
    device = trained().trace().devices[0]
    gradients = device.tensors.take(device.tensors.category == CATEGORIES.index("gradient"))
    assert (gradients.step_free == gradients.step_alloc).all()


def test_zero_grad_before_backward_makes_gradients_survive_their_step():
    device = trained(zero_first=True).trace().devices[0]
    gradients = device.tensors.take(device.tensors.category == CATEGORIES.index("gradient"))
    freed = gradients.take(gradients.step_free >= 0)
    assert (freed.step_free == freed.step_alloc + 1).all()
    assert set(names(LIFETIMES, freed.lifetime)) == {"survives_step"}


def test_steps_and_the_optimizer_are_inferred_from_spans_alone():
    program = trained(steps=5)
    trace = program.trace(stacks=False, spans="Optimizer.step#")
    assert trace.bases["step"] == trace.bases["phase"] == "annotations"
    device = trace.devices[0]
    assert device.events.step.max() == 4
    inside = [i for i, phase in enumerate(program.phases) if phase == "optimizer" and program.entries[i][0] == "alloc"]
    assert set(names(PHASES, device.events.phase[inside])) == {"optimizer"}
    states = device.tensors.take(device.tensors.category == CATEGORIES.index("optimizer_state"))
    assert len(states) == 6


def test_events_with_only_operator_names_have_an_unknown_phase():
    program = trained(steps=5)
    program.entries = [(*entry[:3], (Frame("", 0, "aten::mm"),)) for entry in program.entries]
    device = program.trace(spans="Optimizer.step#").devices[0]
    outside = [
        i
        for i, phase in enumerate(program.phases)
        if phase in ("forward", "backward") and program.entries[i][0] == "alloc"
    ]
    assert set(names(PHASES, device.events.phase[outside])) == {"unknown"}


def test_steps_of_the_profiler_are_used_unchanged():
    program = trained(steps=5)
    for stacks in (False, True):
        trace = program.trace(stacks=stacks, spans="ProfilerStep#")
        step = trace.devices[0].events.step
        starts = [at for name, start, at in program.spans if name.startswith("ProfilerStep#") and start]
        assert trace.bases["step"] == "annotations"
        assert np.flatnonzero(np.diff(step)).tolist() == [at - 1 for at in starts]


def test_without_stacks_steps_are_inferred_from_repetition():
    program = trained(steps=8)
    trace = program.trace(stacks=False)
    assert dict(trace.bases) == {
        "phase": "none",
        "step": "periodicity",
        "category": "none",
        "lifetime": "periodicity+earlier_steps",
    }
    device = trace.devices[0]
    # Initialisation is not a step. The first step, which also allocates the optimizer state, may not be found.
    assert device.events.step.max() + 1 in (7, 8)
    per_step = np.bincount(device.events.step[device.events.step >= 2][:-1])[3:-1]
    assert len(set(per_step.tolist())) == 1
    assert set(names(PHASES, device.events.phase)) == {"unknown"}
    parameters = device.tensors.take(
        np.isin(device.tensors.requested_bytes, [program.size * 2]) & (device.tensors.step_alloc < 0)
    )
    assert set(names(LIFETIMES, parameters.lifetime)) == {"persistent"}


def test_without_repetition_there_are_no_steps():
    random = np.random.default_rng(1)
    program = Training()
    for size in random.integers(1, 1 << 24, 600):
        program.passing(int(size), NO_FRAMES)
    trace = program.trace(stacks=False)
    assert trace.bases["step"] == "none"
    assert trace.devices[0].events.step.max() == -1


def test_layers_of_one_forward_are_not_steps():
    program = Training(layers=40)
    program.initialise()
    program.step(until="forward")
    trace = program.trace()
    assert trace.devices[0].events.step.max() == 0
    activations = trace.devices[0].tensors.category == CATEGORIES.index("activation")
    assert activations.sum() == 42


def test_an_optimizer_that_allocates_only_once_does_not_mark_steps():
    program = trained(steps=1)
    program._optimize = lambda: None
    for _ in range(4):
        program.step()
    device = program.trace().devices[0]
    assert device.events.step.max() == 4


def test_several_optimizers_in_a_row_are_one_step():
    program = Training()
    program.initialise()
    optimize = program._optimize

    def twice():
        optimize()
        program.phase = "outside"
        program.passing(512, KEEP)
        optimize()

    program._optimize = twice
    for _ in range(3):
        program.step()
    assert program.trace().devices[0].events.step.max() == 2


FORWARD_FRAME = Frame("/app/model.py", 1, "forward")
BACKWARD_FRAME = Frame("/env/site-packages/torch/_tensor.py", 1, "backward")
STEP_FRAME = Frame("/env/site-packages/torch/optim/optimizer.py", 1, "wrapper")


@pytest.mark.parametrize(
    ("frames", "marker"),
    [
        ([FORWARD_FRAME], "forward"),
        ([FORWARD_FRAME, BACKWARD_FRAME], "backward"),  # checkpointing
        ([FORWARD_FRAME, STEP_FRAME], "forward"),  # a closure
        ([BACKWARD_FRAME, STEP_FRAME], "backward"),
        ([Frame("/app/my_optim.py", 5, "step"), STEP_FRAME], "optimizer"),
        ([Frame("/app/my_optimizers.py", 5, "step")], "optimizer"),
        ([Frame("/app/sampler.py", 5, "step")], None),
        ([Frame("/env/site-packages/torch/optim/lr_scheduler.py", 5, "step")], None),
        ([Frame("/env/site-packages/torch/optim/optimizer.py", 5, "zero_grad")], "outside"),
        ([Frame("", 0, "torch::autograd::Engine::thread_main()")], "backward"),
        ([Frame("/app/engine.py", 5, "forward_backward_step")], None),
        (
            [Frame("/env/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_state.py", 5, "_pre_backward")],
            "backward",
        ),
        ([Frame("/env/site-packages/torch/nn/modules/module.py", 5, "_apply")], "initialisation"),
        ([Frame("/app/model.py", 5, "__init__")], "initialisation"),
        ([Frame("C:\\env\\torch\\nn\\modules\\module.py", 5, "_call_impl")], "forward"),
        ([Frame("/app/data.py", 5, "to")], None),
        ([Frame("", 0, "at::empty")], "silent"),
    ],
)
def test_the_phase_is_inferred_from_the_stack(frames, marker):
    stacks, ids = Stacks.from_lists([frames])
    said = read_stacks(stacks).marker
    expected = {None: OTHER, "silent": SILENT}.get(marker)
    assert said[ids[0]] == (PHASES.index(marker) if expected is None else expected)
    assert said[-1] == SILENT


def test_annotating_twice_changes_nothing():
    trace = trained().trace()
    assert annotate(trace) is trace
    again = annotate(replace(trace, bases={}))
    for column in schema.TENSORS:
        assert (again.devices[0].tensors[column] == trace.devices[0].tensors[column]).all()


_FRAMES = [
    FORWARD_FRAME,
    BACKWARD_FRAME,
    STEP_FRAME,
    Frame("/app/a.py", 1, "main"),
    Frame("/env/site-packages/torch/optim/optimizer.py", 5, "zero_grad"),
    Frame("/app/model.py", 5, "__init__"),
    Frame("", 0, "at::empty"),
]


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(schema.ACTIONS) - 1),
            st.integers(-1, 6),
            st.integers(0, 4 * MIB),
            st.lists(st.sampled_from(_FRAMES), max_size=3),
        ),
        max_size=60,
    )
)
def test_any_sequence_of_entries_gets_phases_and_lifetimes(entries):
    stacks, ids = Stacks.from_lists([entry[3] for entry in entries])
    device = RawDevice(
        device=0,
        action=np.array([entry[0] for entry in entries], np.int8),
        addr=np.array([entry[1] for entry in entries], np.int64) * 4 * MIB,
        size=np.array([entry[2] for entry in entries], np.int64),
        stack=ids,
        has_addresses=False,
    )
    trace = build_trace(RawTrace(path="any", format="event-npz", backend=None, raws=[device], stacks=stacks))
    events, tensors = trace.devices[0].events, trace.devices[0].tensors
    assert set(trace.bases) == set(BASES)
    assert ((events.phase >= 0) & (events.phase < len(PHASES))).all()
    assert (np.diff(events.step) >= 0).all()
    kept = tensors.free_requested_at >= len(events)
    assert (tensors.step_free[kept] == -1).all()
    assert (tensors.step_alloc[tensors.alloc_at < 0] == -1).all()
    brief = tensors.lifetime == LIFETIMES.index("temporary")
    assert not (brief & kept & ~tensors.lifetime_inferred).any()


def test_goldens_have_the_steps_that_were_run(golden):
    trace = load(golden / "snapshot.pickle")
    for device in trace.devices:
        assert (np.diff(device.events.step) >= 0).all()
        if golden.name.endswith(("-train", "-expandable")):
            assert device.events.step.max() + 1 in (3, 4, 5, 6)
            assert {"forward", "backward", "optimizer"} <= set(names(PHASES, device.events.phase))
