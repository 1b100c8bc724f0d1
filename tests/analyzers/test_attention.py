"""Attention weights that autograd retains are found by their size between smaller tensors of an attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import attention, kept_chains
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.joined import join
from memdiag.trace.schema import CATEGORIES, LIFETIMES, PHASES
from tests.analyzers.heaps import MIB, Heap

ATTENTION = "attention.py:31 forward"
# MiB, and whether backward needs it: the product of queries and keys, the same with a scale, softmax, the mask of
# dropout, and its result
WEIGHTS = ((64, False), (64, False), (64, True), (16, True), (64, True))
PROJECTED = ((4, True), (4, True), (4, True))


def layers(heap, weights=WEIGHTS, projected=PROJECTED, after=4, count=4, where=ATTENTION, gradients=0, live=""):
    """Returns the trace of calls of an attention, then ``gradients`` of the weights that are live at the same time.

    All retained tensors are freed at the end; with ``live``, a category, they have it, and memory runs out before.
    """
    calls = [*((each, "linear.py:134 forward") for each in projected), *((each, where) for each in weights)]
    heap.segment(0, (count * (sum(size for (size, _), _ in calls) + after) if live else 4000) * MIB)
    at, saved, kept = 0, [], []
    for _ in range(count):
        for (size, keep), site in [*calls, ((after, True), where)]:
            heap.alloc(at, size * MIB, where=[*site.split(", "), "model.py:12 block"])
            if keep:
                kept.append((at, size * MIB))
            else:
                heap.free(at, size * MIB)
            saved.append(keep)
            at += size
    for number in range(gradients):
        heap.alloc(at + 64 * number, 64 * MIB)
    for number in range(gradients):
        heap.free(at + 64 * number, 64 * MIB)
    if live:
        heap.oom(540 * MIB, device_free=0)  # more than is free
    for address, size in [] if live else kept:
        heap.free(address, size)
    trace = heap.trace()
    (device,) = trace.devices
    tensors = device.tensors
    by_time = np.argsort(np.argsort(tensors.alloc_at))
    saved = np.array([*saved, *[False] * gradients])[by_time]
    lifetime = np.where(
        saved, LIFETIMES.index("unknown" if live else "forward_to_backward"), LIFETIMES.index("temporary")
    )
    category = np.where(saved, CATEGORIES.index(live or "activation"), CATEGORIES.index("temporary"))
    is_backward = by_time >= len(by_time) - gradients
    phase = np.where(is_backward, PHASES.index("backward"), PHASES.index("forward"))
    tensors = tensors.replace(lifetime=lifetime, phase_alloc=phase, category=category)
    return replace(trace, devices=(replace(device, tensors=tensors),))


def found(trace):
    return list(attention.analyze(trace, Context()))


def test_weights_that_attention_keeps_are_counted(heap):
    trace = layers(heap)
    (finding,) = found(trace)
    assert (finding.code, finding.severity) == ("MD131", "warning")
    assert finding.evidence[0].value == finding.saving.high_bytes == 4 * 144 * MIB
    assert [evidence.value for evidence in finding.evidence if evidence.unit == "calls"] == [4]
    assert "scaled_dot_product_attention" in finding.fixes[0].change
    assert not list(kept_chains.analyze(trace, Context()))  # a fused norm does not help


def test_gradients_and_temporary_copies_of_the_weights_are_saved_too(heap):
    (finding,) = found(layers(heap, gradients=2))
    assert finding.saving.expected_bytes == finding.saving.high_bytes == (4 * 144 + 2 * 64) * MIB


def test_weights_that_autocast_converts_for_softmax_count_with_the_product_of_16_bits(heap):
    weights = ((32, False), (1, True), (32, False), (64, False), (64, True), (32, True))
    (finding,) = found(layers(heap, weights=weights))
    assert finding.evidence[0].value == 4 * 96 * MIB
    assert not found(
        layers(Heap(), weights=weights, projected=((32, True),))
    )  # a projection of the size of the product


@pytest.mark.parametrize(("category", "severity"), [("activation", "critical"), ("temporary", None)])
def test_weights_live_when_memory_runs_out_in_a_first_forward_count(category, severity, heap):
    assert [each.severity for each in found(layers(heap, live=category))] == ([severity] if severity else [])


def test_the_report_on_the_failure_suggests_another_attention_first(heap):
    (message,) = join(None, replace(layers(heap, live="activation"), backend="cuda")).messages
    assert message.findings[0].code == "MD131"


def test_pytorchs_own_module_only_needs_an_argument(heap):
    (finding,) = found(
        layers(heap, where="functional.py:7038 multi_head_attention_forward, activation.py:1494 forward")
    )
    assert finding.fixes[0].change == "attention(q, k, v, need_weights=False)"


@pytest.mark.parametrize(
    "change",
    [
        {"where": "mlp.py:31 forward"},  # no attention
        {"projected": ((64, True),)},  # chains after a projection, such as rotary embeddings
        {"projected": ((32, True),)},  # tensors that are converted to a larger type
        {"where": "attention.py:31 norm"},
        {"where": "functional.py:6251 _in_projection_packed, activation.py:1494 forward"},  # queries, keys and values
        {"after": 40},  # the result is more than half as large
        {"weights": ((64, True),)},  # one tensor
        {"weights": ((64, False), (64, False))},  # backward needs none
        {"weights": ((6, False), (6, True), (6, True))},  # too few bytes, and less than twice as large
    ],
)
def test_other_tensors_of_a_forward_are_left_alone(heap, change):
    assert found(layers(heap, **change)) == []


def _attention():
    return found(layers(Heap()))


PAGE_EXAMPLES = {
    "MD131": _attention,
}
