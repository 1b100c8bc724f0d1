"""Phases, steps, categories and lifetimes, against a program of which everything is known."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.annotate import BASES, annotate
from memdiag.trace.build import build_trace
from memdiag.trace.evidence import OTHER, SILENT, read_stacks
from memdiag.trace.raw import RawDevice
from memdiag.trace.schema import CATEGORIES, LIFETIMES, PHASES
from memdiag.trace.stacks import Frame, Stacks

_program = runpy.run_path(str(Path(__file__).parents[1] / "training.py"))
Training, MIB = _program["Training"], _program["MIB"]


def trained(steps=4, **options):
    program = Training()
    program.initialise()
    for _ in range(steps):
        program.step(**options)
    return program


def born(device):
    """Rows of the tensors that the trace shows the birth of, in order of birth."""
    rows = np.flatnonzero(device.tensors.alloc_at >= 0)
    return rows[np.argsort(device.tensors.alloc_at[rows])]


def names(table, index):
    return [table[i] for i in index]


def wrong(device, program, column, place):
    """Tensors whose inferred value differs from the truth, as (truth, inferred) pairs with counts."""
    rows = born(device)
    table = CATEGORIES if column == "category" else PHASES
    pairs = zip([t[place] for t in program.truth], names(table, device.tensors[column][rows]), strict=True)
    return [pair for pair in pairs if pair[0] != pair[1]]


@pytest.mark.parametrize("zero_first", [False, True])
def test_every_tensor_is_told_for_what_it_is(zero_first):
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
    # what is freed before the first allocation of the next phase counts with the phase that went on
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


def test_lifetimes_by_kind():
    device = trained().trace().devices[0]
    kinds = {}
    for category, lifetime in zip(names(CATEGORIES, device.tensors.category), names(LIFETIMES, device.tensors.lifetime), strict=True):
        kinds.setdefault(category, set()).add(lifetime)
    assert kinds["parameter"] == {"persistent"}
    assert kinds["optimizer_state"] == {"optimizer_state"}
    assert kinds["temporary"] <= {"temporary", "within_phase"}
    assert kinds["activation"] == {"forward_to_backward", "survives_step"}  # a loss lives until the next one
    assert kinds["input"] == {"survives_step"}


def test_a_trace_that_begins_late_knows_parameters_by_the_sizes_of_gradients():
    program = trained()
    second = next(at for name, start, at in program.spans if name == "ProfilerStep#2" and start)
    device = program.trace(first=second).devices[0]
    before = device.tensors.alloc_at < 0
    held = {name: int(device.tensors.requested_bytes[before & (device.tensors.category == i)].sum()) for i, name in enumerate(CATEGORIES)}
    assert device.events.step.max() == 1
    # three of each size were there all along, a parameter and two states: which is which cannot be told
    assert held["parameter"] == 0
    program = trained()
    for state in program.states:
        program.free(state)
    device = program.trace(first=second).devices[0]
    before = (device.tensors.alloc_at < 0) & (device.tensors.category == CATEGORIES.index("parameter"))
    assert sorted(device.tensors.requested_bytes[before]) == [program.size * (1 + k) for k in range(program.layers)]


def test_spans_alone_tell_steps_and_the_optimizer():
    program = trained(steps=5)
    trace = program.trace(stacks=False, spans="Optimizer.step#")
    assert trace.bases["step"] == trace.bases["phase"] == "annotations"
    device = trace.devices[0]
    assert device.events.step.max() == 4
    inside = [i for i, phase in enumerate(program.phases) if phase == "optimizer" and program.entries[i][0] == "alloc"]
    assert set(names(PHASES, device.events.phase[inside])) == {"optimizer"}
    states = device.tensors.take(device.tensors.category == CATEGORIES.index("optimizer_state"))
    assert len(states) == 6


def test_names_of_operators_are_no_silence():
    program = trained(steps=5)
    program.entries = [(*entry[:3], (Frame("", 0, "aten::mm"),)) for entry in program.entries]
    device = program.trace(spans="Optimizer.step#").devices[0]
    outside = [i for i, phase in enumerate(program.phases) if phase in ("forward", "backward") and program.entries[i][0] == "alloc"]
    assert set(names(PHASES, device.events.phase[outside])) == {"unknown"}


def test_steps_of_the_profiler_are_taken_as_they_are():
    program = trained(steps=5)
    for stacks in (False, True):
        trace = program.trace(stacks=stacks, spans="ProfilerStep#")
        step = trace.devices[0].events.step
        starts = [at for name, start, at in program.spans if name.startswith("ProfilerStep#") and start]
        assert trace.bases["step"] == "annotations"
        assert np.flatnonzero(np.diff(step)).tolist() == [at - 1 for at in starts]


def test_without_stacks_steps_are_what_repeats():
    program = trained(steps=8)
    trace = program.trace(stacks=False)
    assert dict(trace.bases) == {"phase": "none", "step": "periodicity", "category": "none", "lifetime": "periodicity+earlier_steps"}
    device = trace.devices[0]
    # initialisation is no step, and the first step (it makes the optimizer's state) is one
    assert device.events.step.max() + 1 in (7, 8)
    per_step = np.bincount(device.events.step[device.events.step >= 2][:-1])[3:-1]
    assert len(set(per_step.tolist())) == 1
    assert set(names(PHASES, device.events.phase)) == {"unknown"}
    parameters = device.tensors.take(np.isin(device.tensors.requested_bytes, [program.size * 2]) & (device.tensors.step_alloc < 0))
    assert set(names(LIFETIMES, parameters.lifetime)) == {"persistent"}


def test_nothing_is_a_step_where_nothing_repeats():
    random = np.random.default_rng(1)
    program = Training()
    for size in random.integers(1, 1 << 24, 600):
        program.passing(int(size), _program["SILENT"])
    trace = program.trace(stacks=False)
    assert trace.bases["step"] == "none"
    assert trace.devices[0].events.step.max() == -1


def test_layers_of_one_forward_are_no_steps():
    program = Training(layers=40)
    program.initialise()
    program.step(until="forward")
    trace = program.trace()
    assert trace.devices[0].events.step.max() == 0
    activations = trace.devices[0].tensors.category == CATEGORIES.index("activation")
    assert activations.sum() == 42


def test_what_lives_when_memory_runs_out_is_judged_by_the_steps_before():
    program = trained(steps=3)
    program.step(until="forward")
    program.phase = "backward"
    program.alloc(4, _program["BACKWARD"], "temporary")
    program.alloc(program.size * 3, _program["SILENT"], "temporary")  # in steps before: mostly made and freed at once
    program.alloc(program.size * 2, _program["SILENT"], "gradient")
    program.fail(1 << 41)
    device = program.trace().devices[0]
    assert names(CATEGORIES, device.tensors.category[born(device)[-3:]]) == ["temporary", "temporary", "gradient"]


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
        program.passing(512, _program["KEEP"])
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
        ([Frame("/env/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_state.py", 5, "_pre_backward")], "backward"),
        ([Frame("/env/site-packages/torch/nn/modules/module.py", 5, "_apply")], "initialisation"),
        ([Frame("/app/model.py", 5, "__init__")], "initialisation"),
        ([Frame("C:\\env\\torch\\nn\\modules\\module.py", 5, "_call_impl")], "forward"),
        ([Frame("/app/data.py", 5, "to")], None),
        ([Frame("", 0, "at::empty")], "silent"),
    ],
)
def test_what_a_stack_says(frames, marker):
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


def test_what_the_source_says_of_categories_is_kept():
    program = trained()
    said = np.zeros(len(program.entries), np.int8)
    allocs = [i for i, entry in enumerate(program.entries) if entry[0] == "alloc"]
    said[allocs[0]] = CATEGORIES.index("collective")
    trace = program.trace(category=said)
    assert trace.devices[0].tensors.category[born(trace.devices[0])[0]] == CATEGORIES.index("collective")
    assert trace.bases["category"] == "marks"


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
    trace = build_trace(path="any", format="event-npz", backend=None, raws=[device], stacks=stacks)
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


def test_a_real_training_step_adds_up(shared):
    """A 3.4 G parameter model in fp32: as many bytes of gradients as of parameters, and twice that of Adam's state."""
    trace = load(shared / "data/snapshots/kkaitlyn111__cs336-a2-systems__memory_files__memory_ctx128_fullstep_.pickle")
    device = trace.devices[0]
    live = device.live(device.peak("allocated"))
    held = {name: int(device.tensors.requested_bytes[live][device.tensors.category[live] == i].sum()) for i, name in enumerate(CATEGORIES)}
    assert held["parameter"] == pytest.approx(held["gradient"], rel=0.001)
    assert held["optimizer_state"] == pytest.approx(2 * held["gradient"], rel=0.02)
    assert held["unknown"] < 0.001 * held["parameter"]


MODULE, CONSTRUCTOR = Frame("/app/model.py", 5, "__init__"), Frame("/app/engine.py", 5, "__init__")
OWN_FORWARD = Frame("/app/model.py", 9, "forward")
MAIN = Frame("/app/serve.py", 1, "main")


def category_of(*frames, then=(OWN_FORWARD, MAIN)):
    """The category of a tensor that is made with these frames, and kept while a forward runs."""
    stacks, ids = Stacks.from_lists([frames, then, then])
    device = RawDevice(
        device=0,
        action=np.array([schema.ALLOC, schema.ALLOC, schema.FREE_COMPLETED], np.int8),
        addr=np.array([0, 8 * MIB, 8 * MIB]),
        size=np.array([4 * MIB, MIB, MIB]),
        stack=ids,
    )
    trace = build_trace(path="any", format="torch-snapshot", backend="cuda", raws=[device], stacks=stacks)
    return CATEGORIES[trace.devices[0].tensors.category[0]]


@pytest.mark.parametrize(
    "frames",
    [
        [Frame("/env/vllm/worker/cache_engine.py", 83, "_allocate_kv_cache"), Frame("/env/vllm/worker/cache_engine.py", 64, "__init__")],
        [Frame("/env/vllm/v1/worker/gpu_model_runner.py", 83, "_allocate_kv_cache_tensors"), CONSTRUCTOR],
        [Frame("/env/sglang/memory_pool.py", 83, "_create_kv_buffers"), CONSTRUCTOR],
        [Frame("/env/transformers/cache_utils.py", 83, "early_initialization"), CONSTRUCTOR],
        [MODULE, Frame("/app/model.py", 99, "setup_caches")],
    ],
)
def test_kv_caches_are_no_parameters(frames):
    assert category_of(*frames, MAIN) == "kv_cache"


def test_what_an_engine_makes_beside_its_cache_is_not_called_one():
    inner = [Frame("/app/engine.py", line, "warm_up") for line in range(5)]
    assert category_of(*inner, Frame("/app/engine.py", 90, "_initialize_kv_caches"), CONSTRUCTOR, MAIN) == "unknown"
    assert category_of(Frame("/app/model.py", 5, "_build_rope_cache"), CONSTRUCTOR, MAIN) == "unknown"


def test_a_constructor_alone_proves_no_parameter():
    assert category_of(CONSTRUCTOR, MAIN) == "unknown"
    assert (
        category_of(Frame("/app/buffers.py", 592, "__init__"), Frame("/app/ddp.py", 1, "_allocate_buffers_for_parameters"), MAIN)
        == "unknown"
    )


@pytest.mark.parametrize(
    "frames",
    [
        [Frame("/env/site-packages/torch/nn/modules/linear.py", 106, "__init__"), CONSTRUCTOR],
        [MODULE, CONSTRUCTOR],  # the forward of the same file runs
        [Frame("/env/vllm/linear.py", 9, "create_weights"), CONSTRUCTOR],
        [Frame("/app/backend.py", 9, "allocate"), Frame("/app/opt.py", 9, "init_weight"), CONSTRUCTOR],
    ],
)
def test_constructors_of_modules_make_parameters(frames):
    assert category_of(*frames, MAIN) == "parameter"


def test_what_any_constructor_made_is_a_parameter_if_it_has_a_gradient():
    program = Training()
    program.parameters = [program.alloc(program.size * (1 + k), (CONSTRUCTOR, MAIN), "parameter") for k in range(program.layers)]
    other = program.alloc(7 * MIB, (CONSTRUCTOR, MAIN), "unknown")
    for _ in range(3):
        program.step()
    device = program.trace().devices[0]
    assert other in program.live
    assert names(CATEGORIES, device.tensors.category[born(device)[:4]]) == ["parameter"] * 3 + ["unknown"]


def applied(line):
    """Frames of the line of ``Module._apply`` that moves something, called for a child."""
    file = "/env/site-packages/torch/nn/modules/module.py"
    return (Frame(file, 1053, "convert"), Frame(file, line, "_apply"), Frame(file, 900, "_apply"), Frame(file, 1084, "to"), MAIN)


@pytest.mark.parametrize(
    ("lines", "truth"),
    [
        ([964, 1008, 964, 1008], ["parameter", "gradient"] * 2),
        ([964, 1008, 964, 1008, 1034, 964], ["parameter", "gradient", "parameter", "gradient", "parameter", "parameter"]),  # a buffer
        ([964, 964, 1034, 1034], ["parameter"] * 4),  # a batch norm: weight, bias, running mean, running variance
        ([964, 964, 964, 1034], ["parameter"] * 4),
    ],
)
def test_gradients_that_are_moved_with_their_module_are_gradients(lines, truth):
    program = Training()
    program.parameters = [program.alloc(2 * MIB, applied(line), "parameter") for line in lines]
    program.step()
    device = program.trace().devices[0]
    assert names(CATEGORIES, device.tensors.category[born(device)[: len(lines)]]) == truth
