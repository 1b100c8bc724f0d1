"""The analyzer counts tensors that autograd retains for element-wise chains beyond those of a fused operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import kept_chains
from memdiag.analyzers.support.context import Context
from memdiag.trace.schema import LIFETIMES, PHASES
from memdiag.trace.stacks import Stacks
from tests.analyzers.heaps import MIB, Heap

# MiB of each tensor, and whether backward needs it: x.float(), its square, x.to(…), the result
NORM = (
    (64, True),
    (64, False),
    (32, True),
    (32, True),
)


def layers(heap, chain=NORM, count=6, where="norm", linear="linear", inner="forward"):
    """Adds layers with a chain in one forward, then a matrix product in a separate module.

    All retained tensors are freed at the end.
    """
    heap.segment(0, 8000 * MIB)
    at, kept = 0, []
    for _ in range(count):
        for (size, keep), outer in [*((each, where) for each in chain), ((100, True), linear)]:
            heap.alloc(at, size * MIB, where=[inner, outer])
            if keep:
                kept.append((at, size * MIB))
            else:
                heap.free(at, size * MIB)
            at += size
    for address, size in kept:
        heap.free(address, size)
    trace = heap.trace()
    (device,) = trace.devices
    tensors = device.tensors
    is_saved = np.isin(
        tensors.alloc_at, [event for event, entry in enumerate(heap.entries) if (entry[1] // MIB, entry[2]) in kept]
    )
    lifetime = np.where(is_saved, LIFETIMES.index("forward_to_backward"), LIFETIMES.index("temporary"))
    tensors = tensors.replace(lifetime=lifetime, phase_alloc=np.full(len(tensors), PHASES.index("forward")))
    return replace(trace, devices=(replace(device, tensors=tensors),))


def found(trace):
    return list(kept_chains.analyze(trace, Context()))


def test_what_unfused_norms_keep_is_counted_less_input_and_result_of_a_fused_one(heap):
    (finding,) = found(layers(heap))
    assert (finding.code, finding.severity) == ("MD130", "warning")
    assert finding.evidence[0].value == 6 * 128 * MIB
    assert (finding.saving.low_bytes, finding.saving.expected_bytes, finding.saving.high_bytes) == (
        0,
        6 * 64 * MIB,
        6 * 96 * MIB,
    )
    assert "rms_norm" in finding.fixes[0].change


@pytest.mark.parametrize(("steps", "is_loop"), [(4, False), (12, True)])
def test_a_loop_over_a_sequence_is_recomputed(heap, steps, is_loop):
    (finding,) = found(layers(heap, chain=((32, True),) * steps, where="scan"))
    assert ("checkpoint" in finding.fixes[0].change) is is_loop
    assert ("rms_norm" in finding.fixes[0].change) is not is_loop
    assert finding.fixes[1].change == "module.compile()"
    less = 6 * (steps - 2) * 32 * MIB
    assert (
        finding.saving.expected_bytes == less - is_loop * steps * 32 * MIB
    )  # one loop at a time needs its memory again


@pytest.mark.parametrize(
    ("function", "file", "is_function"),
    [
        ("forward", "transformers/activations.py", True),
        ("new_gelu", "model.py", True),
        ("forward", "model.py", False),
        ("react", "activate.py", False),
    ],
)
def test_a_fused_activation_function_replaces_one_of_single_operators(heap, function, file, is_function):
    trace = layers(heap, inner="inner")
    stacks = trace.stacks
    frames = [
        frame._replace(filename=f"/site-packages/{file}", name=function)
        if frame.name == "inner"
        else frame._replace(filename=f"/{frame.name}.py", name="forward")
        for frame in stacks.frames
    ]
    (finding,) = found(replace(trace, stacks=Stacks(frames, stacks.offsets, stacks.frame_ids)))
    assert ("gelu" in finding.fixes[0].change) is is_function
    assert ("rms_norm" in finding.fixes[0].change) is not is_function


def test_chains_that_torch_compile_has_fused_are_left_alone(heap):
    trace = layers(heap)
    stacks = trace.stacks
    frames = [
        frame._replace(filename=f"/cache/ab/c{'a7' * 25}z.py", name="call") if frame.name == "norm" else frame
        for frame in stacks.frames
    ]
    assert found(trace)
    assert not found(replace(trace, stacks=Stacks(frames, stacks.offsets, stacks.frame_ids)))


def test_on_an_npu_the_operator_of_torch_npu_is_named(heap):
    (finding,) = found(replace(layers(heap), backend="npu"))
    assert "torch_npu.npu_rms_norm" in finding.fixes[0].change


@pytest.mark.parametrize(
    "chain",
    [
        ((64, True), (64, True)),  # two tensors: not a chain
        ((64, True), (64, False), (64, False)),  # backward needs one of them
        ((64, True), (37, True), (64, True)),  # different numbers of elements
        ((4, True), (4, True), (4, True)),  # too few bytes
    ],
)
def test_other_runs_are_left_alone(heap, chain):
    assert found(layers(heap, chain)) == []


@pytest.mark.parametrize(("file", "num_found"), [("linear.py", 0), ("normalization.py", 1)])
def test_layers_of_a_sequential_that_multiply_are_no_chain(heap, file, num_found):
    """They have the same callers, because one line of nn.Sequential calls them all."""
    trace = layers(heap, inner="linear.py:134 forward")
    stacks = trace.stacks
    frames = [frame._replace(filename=f"/env/torch/nn/modules/{file}") for frame in stacks.frames]
    moved = replace(trace, stacks=Stacks(frames, stacks.offsets, stacks.frame_ids))
    assert len(found(moved)) == num_found


def test_masks_of_one_byte_an_element_belong_to_the_chain(heap):
    (finding,) = found(layers(heap, ((64, True), (32, True), (64, False), (64, True))))
    assert finding.evidence[0].value == 6 * 160 * MIB


def _norms():
    return found(layers(Heap(), where="model.py:31 block", linear="model.py:33 block", inner="norm.py:12 forward"))


PAGE_EXAMPLES = {
    "MD130": _norms,
}
