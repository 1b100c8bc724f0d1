"""Categories of tensors, and lifetimes by category, agree with a simulated training of which every tensor is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from memdiag.sources import load
from memdiag.trace import schema
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.categories import _inputs
from memdiag.trace.evidence import read_stacks
from memdiag.trace.raw import RawDevice
from memdiag.trace.schema import CATEGORIES, LIFETIMES, PHASES
from memdiag.trace.stacks import Frame, Stacks
from memdiag.trace.workspaces import HOPPER_WORKSPACE, convolution_workspaces
from tests.trace.trainings import NO_FRAMES, born, names, trained
from tests.training import BACKWARD, BATCH, MIB, STEP, Training, forward


def test_lifetimes_by_kind():
    device = trained().trace().devices[0]
    kinds = {}
    for category, lifetime in zip(
        names(CATEGORIES, device.tensors.category), names(LIFETIMES, device.tensors.lifetime), strict=True
    ):
        kinds.setdefault(category, set()).add(lifetime)
    assert kinds["parameter"] == {"persistent"}
    assert kinds["optimizer_state"] == {"optimizer_state"}
    assert kinds["temporary"] <= {"temporary", "within_phase"}
    assert kinds["activation"] == {"forward_to_backward", "survives_step"}  # a loss lives until the next one
    assert kinds["input"] == {"survives_step"}


def test_parameters_older_than_the_trace_are_inferred_from_gradient_sizes():
    program = trained()
    second = next(at for name, start, at in program.spans if name == "ProfilerStep#2" and start)
    device = program.trace(first=second).devices[0]
    before = device.tensors.alloc_at < 0
    held = {
        name: int(device.tensors.requested_bytes[before & (device.tensors.category == i)].sum())
        for i, name in enumerate(CATEGORIES)
    }
    assert device.events.step.max() == 1
    # Three live tensors of each size, a parameter and two states, are older than the trace and indistinguishable.
    assert held["parameter"] == 0
    program = trained()
    for state in program.states:
        program.free(state)
    device = program.trace(first=second).devices[0]
    before = (device.tensors.alloc_at < 0) & (device.tensors.category == CATEGORIES.index("parameter"))
    assert sorted(device.tensors.requested_bytes[before]) == [program.size * (1 + k) for k in range(program.layers)]


def test_categories_of_tensors_live_at_a_failure_follow_from_earlier_steps():
    program = trained(steps=3)
    program.step(until="forward")
    program.phase = "backward"
    program.alloc(4, BACKWARD, "temporary")
    program.alloc(program.size * 3, NO_FRAMES, "temporary")  # in earlier steps, most of this size are freed at once
    program.alloc(program.size * 2, NO_FRAMES, "gradient")
    program.fail(1 << 41)
    device = program.trace().devices[0]
    assert names(CATEGORIES, device.tensors.category[born(device)[-3:]]) == ["temporary", "temporary", "gradient"]


def test_categories_given_by_the_source_are_kept():
    program = trained()
    said = np.zeros(len(program.entries), np.int8)
    allocs = [i for i, entry in enumerate(program.entries) if entry[0] == "alloc"]
    said[allocs[0]] = CATEGORIES.index("collective")
    trace = program.trace(category=said)
    assert trace.devices[0].tensors.category[born(trace.devices[0])[0]] == CATEGORIES.index("collective")
    assert trace.bases["category"] == "marks"


@pytest.mark.parametrize(("stack", "truth"), [([3, 3, -1, -1], [True, True, True, False]), ([-1] * 4, [True] * 4)])
def test_tensors_without_stacks_after_backward_are_no_inputs_if_inputs_have_stacks(stack, truth):
    phases = [PHASES.index(name) for name in ("initialisation", "backward", "optimizer", "backward")]
    lives = SimpleNamespace(
        previous_phase=np.array(phases),
        previous_step=np.zeros(4, int),
        step_alloc=np.zeros(4, int),
        phase_alloc=np.full(4, PHASES.index("outside")),
    )
    unknown = np.full(4, CATEGORIES.index("unknown"))
    assert _inputs(np.ones(4, bool), unknown, lives, np.array(stack)).tolist() == truth


def test_a_redistributed_tensor_that_stays_is_an_activation():
    def gathering(name, file, line):
        path = f"/env/lib/python3.11/site-packages/torch/distributed/{file}"
        return (Frame(path, line, name), *forward(0))

    buffer = gathering("all_gather_single", "_functional_collectives.py", 209)
    logits = gathering("all_gather_single", "_functional_collectives.py", 223)
    weights = gathering("alloc_storage", "fsdp/_fully_shard/_fsdp_param.py", 1069)
    program = trained()
    program.phase = "forward"
    program.passing(3 * MIB, buffer)
    kept = [program.alloc(size * MIB, frames, "") for size, frames in ((5, logits), (7, weights))]
    program.phase = "backward"
    program.passing(4, BACKWARD)
    for each in kept:
        program.free(each)
    device = program.trace().devices[0]
    found = dict(zip(device.tensors.requested_bytes.tolist(), names(CATEGORIES, device.tensors.category), strict=True))
    assert (found[3 * MIB], found[5 * MIB], found[7 * MIB]) == ("collective", "activation", "collective")


class OnHopper(Training):
    """A training on Hopper: the first output of the forward, and of backward, is followed by a workspace of cuBLAS."""

    def __init__(self, *, retains=False, **options):
        super().__init__(**options)
        self.retains, self.outputs = retains, {"activation": forward(0), "gradient": NO_FRAMES}

    def alloc(self, size, frames, category):
        found = super().alloc(size, frames, category)
        if self.outputs.get(category) == frames:
            del self.outputs[category]
            super().alloc(HOPPER_WORKSPACE, frames, "workspace")
        return found

    def _optimize(self):
        if not self.retains:
            super()._optimize()

    def _zero_grad(self):
        if not self.retains:
            super()._zero_grad()


@pytest.mark.parametrize("size", [4 * MIB, HOPPER_WORKSPACE // 3, HOPPER_WORKSPACE // 2, HOPPER_WORKSPACE])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("until", ["", "forward", "backward"])
@pytest.mark.parametrize("retains", [False, True])  # gradients, and there is no optimizer
def test_workspaces_of_cublas_on_hopper_are_found_by_their_order(size, steps, until, retains):
    program = OnHopper(size=size, retains=retains)
    program.initialise()
    for _ in range(steps):
        program.step()
    if until:
        program.step(until=until)
    device = program.trace().devices[0]
    found = device.tensors.category[born(device)] == CATEGORIES.index("workspace")
    assert found.tolist() == [category == "workspace" for category, _, _ in program.truth]


@pytest.mark.parametrize("size", [4 * MIB, HOPPER_WORKSPACE])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_first_backward_may_multiply_nothing(size, steps):
    program = OnHopper(size=size)
    first = program.outputs.pop("gradient")
    program.initialise()
    program.alloc(program.size, forward(0), "activation")  # an agent acts before it is trained
    program.alloc(4, STEP, "temporary")
    program.alloc(4, NO_FRAMES, "temporary")  # the loss of one number, with a step of its own
    program.alloc(4, STEP, "temporary")
    program.outputs["gradient"] = first
    for _ in range(steps):
        program.step()
    device = program.trace().devices[0]
    found = device.tensors.category[born(device)] == CATEGORIES.index("workspace")
    assert found.tolist() == [category == "workspace" for category, _, _ in program.truth]


def test_a_second_stream_copies_batches_before_it_multiplies():
    program = OnHopper()
    program.initialise()
    for _ in range(3):
        program.step()
        program.stream, program.phase = 7, "outside"
        program.passing(MIB, BATCH)
        program.stream = 0
    program.stream, program.phase = 7, "forward"
    program.alloc(MIB, forward(1), "activation")
    program.alloc(HOPPER_WORKSPACE, forward(1), "workspace")
    device = program.trace().devices[0]
    found = device.tensors.category[born(device)] == CATEGORIES.index("workspace")
    assert found.tolist() == [category == "workspace" for category, _, _ in program.truth]


def test_tensors_of_the_size_of_a_workspace_are_none_without_a_multiplication():
    program = Training(size=HOPPER_WORKSPACE)
    program.initialise()
    program.step(until="backward")
    device = program.trace().devices[0]
    assert CATEGORIES.index("workspace") not in device.tensors.category


def test_npus_have_no_workspaces_of_cublas():
    program = OnHopper()
    program.initialise()
    program.step()
    device = program.trace(backend="npu").devices[0]
    assert CATEGORIES.index("workspace") not in device.tensors.category


CONV = (
    Frame("/env/lib/python3.11/site-packages/torch/nn/modules/conv.py", 560, "_conv_forward"),
    *forward(0),
)
PLAN = (Frame("??", 0, "at::native::run_conv_plan(cudnnContext*, at::Tensor const&)"), Frame("??", 0, "at::conv2d()"))
PLANNED = 12_345_678


class Convolutional(Training):
    """Each activation is the result of a convolution, which has a workspace; so has each gradient of a weight."""

    def __init__(self, in_backward):
        super().__init__()
        self.in_backward = in_backward

    def alloc(self, size, frames, category):
        found = super().alloc(size, CONV if category == "activation" else frames, category)
        if category in ("activation", "gradient"):
            own = CONV if category == "activation" else self.in_backward
            self.free(super().alloc(PLANNED, own, "workspace" if own else "temporary"))
        return found


def convolutional(in_backward):
    program = Convolutional(in_backward)
    program.initialise()
    program.step()
    program.step()
    return program


@pytest.mark.parametrize("in_backward", [PLAN, NO_FRAMES])
def test_workspaces_of_convolutions_are_found_by_their_frames(in_backward):
    program = convolutional(in_backward)
    device = program.trace().devices[0]
    found = device.tensors.category[born(device)] == CATEGORIES.index("workspace")
    assert found.tolist() == [category == "workspace" for category, _, _ in program.truth]
    assert CATEGORIES.index("workspace") not in program.trace(backend="npu").devices[0].tensors.category


def test_workspaces_that_cudnn_planned_are_found_by_their_size():
    device = convolutional(NO_FRAMES).trace().devices[0]
    evidence = read_stacks(Stacks.empty())
    unnamed = replace(device, tensors=device.tensors.replace(stack=np.full_like(device.tensors.stack, -1)))
    found = convolution_workspaces(unnamed, evidence, {PLANNED, 0})
    assert found.tolist() == (device.tensors.requested_bytes == PLANNED).tolist()
    assert not convolution_workspaces(unnamed, evidence, set()).any()


def test_workspaces_in_a_real_snapshot_with_native_frames(shared):
    """All memory that cuDNN's plans request is for workspaces; other functions for convolutions request tensors."""
    trace = load(shared / "data/snapshots/JasperSolt__EoR_NN__snapshot.pickle")
    tensors = trace.devices[0].tensors
    text = [" ".join(frame.name for frame in trace.stacks[stack]) for stack in (*range(len(trace.stacks)), -1)]
    runs, convolves = (np.array([word in each for each in text])[tensors.stack] for word in ("run_conv_plan", "conv"))
    is_workspace = tensors.category == CATEGORIES.index("workspace")
    assert runs.sum() == 60
    assert is_workspace[convolves].tolist() == runs[convolves].tolist()


def test_a_real_training_step_adds_up(shared):
    """In an fp32 model of 3.4 G parameters, gradients are as large as parameters and Adam's state is twice as large."""
    trace = load(shared / "data/snapshots/kkaitlyn111__cs336-a2-systems__memory_files__memory_ctx128_fullstep_.pickle")
    device = trace.devices[0]
    live = device.live(device.peak("allocated"))
    held = {
        name: int(device.tensors.requested_bytes[live][device.tensors.category[live] == i].sum())
        for i, name in enumerate(CATEGORIES)
    }
    assert held["parameter"] == pytest.approx(held["gradient"], rel=0.001)
    assert held["optimizer_state"] == pytest.approx(2 * held["gradient"], rel=0.02)
    assert held["unknown"] < 0.001 * held["parameter"]


MODULE, CONSTRUCTOR = Frame("/app/model.py", 5, "__init__"), Frame("/app/engine.py", 5, "__init__")
OWN_FORWARD = Frame("/app/model.py", 9, "forward")
MAIN = Frame("/app/serve.py", 1, "main")


def category_of(*frames, then=(OWN_FORWARD, MAIN)):
    """Returns the category of a tensor that is allocated with these frames and live while a forward runs."""
    stacks, ids = Stacks.from_lists([frames, then, then])
    device = RawDevice(
        device=0,
        action=np.array([schema.ALLOC, schema.ALLOC, schema.FREE_COMPLETED], np.int8),
        addr=np.array([0, 8 * MIB, 8 * MIB]),
        size=np.array([4 * MIB, MIB, MIB]),
        stack=ids,
    )
    trace = build_trace(RawTrace(path="any", format="torch-snapshot", backend="cuda", raws=[device], stacks=stacks))
    return CATEGORIES[trace.devices[0].tensors.category[0]]


@pytest.mark.parametrize(
    "frames",
    [
        [
            Frame("/env/vllm/worker/cache_engine.py", 83, "_allocate_kv_cache"),
            Frame("/env/vllm/worker/cache_engine.py", 64, "__init__"),
        ],
        [Frame("/env/vllm/v1/worker/gpu_model_runner.py", 83, "_allocate_kv_cache_tensors"), CONSTRUCTOR],
        [Frame("/env/vllm/v1/worker/gpu/attn_utils.py", 83, "_allocate_kv_cache"), CONSTRUCTOR],
        [Frame("/env/sglang/memory_pool.py", 83, "_create_kv_buffers"), CONSTRUCTOR],
        [Frame("/env/sglang/srt/mem_cache/memory_pool.py", 83, "_create_buffers"), CONSTRUCTOR],
        [Frame("/env/transformers/cache_utils.py", 83, "early_initialization"), CONSTRUCTOR],
        [MODULE, Frame("/app/model.py", 99, "setup_caches")],
    ],
)
def test_kv_caches_are_not_parameters(frames):
    assert category_of(*frames, MAIN) == "kv_cache"


def test_other_tensors_of_an_engine_are_not_kv_caches():
    inner = [Frame("/app/engine.py", line, "warm_up") for line in range(5)]
    assert category_of(*inner, Frame("/app/engine.py", 90, "_initialize_kv_caches"), CONSTRUCTOR, MAIN) == "unknown"
    assert category_of(Frame("/app/model.py", 5, "_build_rope_cache"), CONSTRUCTOR, MAIN) == "unknown"


@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("/env/vllm/flashinfer.py", "_get_workspace_buffer"),
        ("/env/vllm/v1/worker/workspace.py", "_ensure_workspace_size"),
    ],
)
def test_scratch_memory_of_an_engine_is_a_workspace(file, function):
    outer = Frame("/env/vllm/v1/worker/gpu/model_runner.py", 693, "initialize_kv_cache")
    assert category_of(Frame(file, 5, function), outer, CONSTRUCTOR, MAIN) == "workspace"


def test_a_constructor_alone_does_not_imply_a_parameter():
    assert category_of(CONSTRUCTOR, MAIN) == "unknown"
    assert (
        category_of(
            Frame("/app/buffers.py", 592, "__init__"), Frame("/app/ddp.py", 1, "_allocate_buffers_for_parameters"), MAIN
        )
        == "unknown"
    )


@pytest.mark.parametrize(
    "frames",
    [
        [Frame("/env/site-packages/torch/nn/modules/linear.py", 106, "__init__"), CONSTRUCTOR],
        [MODULE, CONSTRUCTOR],  # a forward in the same file follows
        [Frame("/env/vllm/linear.py", 9, "create_weights"), CONSTRUCTOR],
        [Frame("/app/backend.py", 9, "allocate"), Frame("/app/opt.py", 9, "init_weight"), CONSTRUCTOR],
    ],
)
def test_constructors_of_modules_make_parameters(frames):
    assert category_of(*frames, MAIN) == "parameter"


def test_a_tensor_from_a_constructor_is_a_parameter_if_it_has_a_gradient():
    program = Training()
    program.parameters = [
        program.alloc(program.size * (1 + k), (CONSTRUCTOR, MAIN), "parameter") for k in range(program.layers)
    ]
    other = program.alloc(7 * MIB, (CONSTRUCTOR, MAIN), "unknown")
    for _ in range(3):
        program.step()
    device = program.trace().devices[0]
    assert other in program.live
    assert names(CATEGORIES, device.tensors.category[born(device)[:4]]) == ["parameter"] * 3 + ["unknown"]


def applied(line):
    """Returns the frames of ``Module._apply``, called for a child, at the line that moves a tensor."""
    file = "/env/site-packages/torch/nn/modules/module.py"
    return (
        Frame(file, 1053, "convert"),
        Frame(file, line, "_apply"),
        Frame(file, 900, "_apply"),
        Frame(file, 1084, "to"),
        MAIN,
    )


@pytest.mark.parametrize(
    ("lines", "truth"),
    [
        ([964, 1008, 964, 1008], ["parameter", "gradient"] * 2),
        # Line 1034 moves a buffer.
        (
            [964, 1008, 964, 1008, 1034, 964],
            ["parameter", "gradient", "parameter", "gradient", "parameter", "parameter"],
        ),
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
