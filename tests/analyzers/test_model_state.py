"""After a failure in the first step, memdiag knows what the training needs with a batch of any size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import fragmentation, peak
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context
from memdiag.analyzers.support.demand import growth_in_first_step
from memdiag.analyzers.support.moments import look
from memdiag.diagnosis.refuted import is_solution, judged_results
from memdiag.results.report import WhatIf
from memdiag.trace.recording import Optimizer, ProcessMarks, RecordingEnd
from memdiag.trace.schema import CATEGORIES, PHASES
from tests.analyzers.heaps import MIB

PARAMETERS = 400 * MIB
ADAMW = Optimizer("AdamW", PARAMETERS, 0, frozenset())
UNKNOWN = Optimizer("Muon", PARAMETERS, 0, frozenset())


def failed(heap, *, available, optimizers=(ADAMW,), backend="cuda", where=""):
    """Returns a training that ran out of memory in the forward of its first step; activations take the rest of it."""
    activations = available - PARAMETERS - 50 * MIB
    heap.segment(0, PARAMETERS + activations)
    heap.alloc(0, PARAMETERS, where=where)
    heap.alloc(400, activations)
    heap.oom(200 * MIB, device_free=50 * MIB)
    trace = heap.trace(capacity_bytes=available + 10 * MIB)
    (device,) = trace.devices
    category = [CATEGORIES.index(name) for name in ("parameter", "activation")]
    tensors = device.tensors.replace(category=np.array(category, np.int8))
    events = device.events.replace(phase=np.full(len(device.events), PHASES.index("forward"), np.int8))
    marks = ProcessMarks((), {}, {}, {}, {}, ended=RecordingEnd(reason="oom", optimizers=tuple(optimizers)))
    bases = {**trace.bases, "category": "marks", "phase": "marks"}
    devices = (replace(device, tensors=tensors, events=events),)
    return replace(trace, backend=backend, devices=devices, bases=bases, recorded=marks)


def found(trace):
    return next(each for each in fragmentation.analyze(trace, Context()) if each.code == "MD206")


def test_getting_past_the_failure_is_no_solution_if_a_complete_step_does_not_fit():
    result = WhatIf(0, "export X=1", ("MD201",), False, 100 * MIB, 0, 0, 0, 1, "exact", "")
    for is_too_large in (False, True):
        [judged] = judged_results([replace(result, is_rest_too_large=is_too_large)])
        assert judged.is_offered == is_solution(judged) == (not is_too_large)


def needed(finding):
    return [each.value for each in finding.evidence if each.what.key == "fragmentation.state.needed"]


def test_no_batch_fits_if_the_state_of_the_model_does_not(heap):
    trace = failed(heap, available=999 * MIB)
    finding = found(trace)
    assert needed(finding) == [4 * PARAMETERS]
    assert "alone need about 1.56 GiB, and 999.00 MiB is available" in finding.title
    assert finding.fixes[0].title.key == "remedies.shard"
    others = [fix.title.key for each in peak.analyze(trace, Context()) for fix in each.fixes]
    assert "remedies.batch" not in others


def test_a_smaller_batch_remains_if_the_state_of_the_model_fits(heap):
    finding = found(failed(heap, available=1601 * MIB, optimizers=[ADAMW]))
    assert needed(finding) == [4 * PARAMETERS]
    assert finding.fixes[0].title.key == "remedies.batch"
    assert "alone need" not in finding.title


@pytest.mark.parametrize(
    ("backend", "elements", "available", "key"),
    [
        ("cuda", 0, 1001, "remedies.optimizer"),  # 32 bits are assumed: the states need 200 MiB in 8 bits
        ("cuda", PARAMETERS // 2, 1199, "remedies.shard"),  # 16 bits
        ("cuda", PARAMETERS // 2, 1201, "remedies.optimizer"),
        ("npu", 0, 801, "remedies.optimizer.host"),
        ("npu", 0, 799, "remedies.shard"),
    ],
)
def test_states_of_8_bits_or_on_the_host_are_offered_if_they_fit(backend, elements, available, key, heap):
    optimizer = replace(ADAMW, num_elements=elements)
    finding = found(failed(heap, available=available * MIB, optimizers=[optimizer], backend=backend))
    assert finding.fixes[0].title.key == key


@pytest.mark.parametrize(
    ("optimizers", "factor"),
    [
        ([], None),
        ([UNKNOWN], 2),
        ([UNKNOWN, ADAMW], 2),  # the one may contain the other
        ([ADAMW] * 5, None),  # one for each parameter
        ([Optimizer("SGD", PARAMETERS, 0, frozenset())], 2),
        ([Optimizer("SGD", PARAMETERS, 0, frozenset({"momentum"}))], 3),
        ([Optimizer("AdamW", PARAMETERS, 0, frozenset({"amsgrad"}))], 5),
    ],
)
def test_the_need_depends_on_the_optimizer(optimizers, factor, heap):
    finding = found(failed(heap, available=700 * MIB, optimizers=optimizers))
    assert needed(finding) == ([factor * PARAMETERS] if factor else [])


def test_an_unknown_optimizer_needs_at_least_parameters_and_gradients(heap):
    finding = found(failed(heap, available=700 * MIB, optimizers=[UNKNOWN]))
    assert "parameters and gradients alone need about 800.00 MiB" in finding.title
    assert "without the states of Muon" in next(each.where for each in finding.evidence if each.value == 800 * MIB)
    assert finding.fixes[0].title.key == "remedies.shard"


def test_the_need_is_unknown_if_a_library_divides_the_parameters(heap):
    where = "/lib/deepspeed/runtime/zero/stage_1_and_2.py:500 __init__"
    assert not needed(found(failed(heap, available=700 * MIB, where=where)))


@pytest.mark.parametrize(("device", "is_offered"), [("", True), ("cuda:h100-80g", False)])
def test_no_other_process_uses_a_simulated_device(device, is_offered, heap):
    trace = failed(heap, available=999 * MIB)
    trace = replace(trace, devices=(replace(trace.devices[0], capacity_bytes=2000 * MIB),))
    marks = replace(trace.recorded, ended=RecordingEnd(reason="oom", phantom_device=device))
    keys = {fix.title.key for fix in found(replace(trace, recorded=marks)).fixes}
    assert ("remedies.who" in keys) == is_offered


def test_frozen_parameters_need_no_gradients_and_no_states(heap):
    lora = Optimizer("AdamW", 10 * MIB, 0, frozenset())
    assert needed(found(failed(heap, available=700 * MIB, optimizers=[lora]))) == [PARAMETERS + 3 * 10 * MIB]


@pytest.mark.parametrize(
    ("optimizer", "line", "needed_mib"),
    [
        (Optimizer("SGD", PARAMETERS, 0, frozenset({"momentum"})), "bitsandbytes.optim.SGD8bit(", 900),
        (Optimizer("Adam", PARAMETERS, 0, frozenset()), "bitsandbytes.optim.Adam8bit(", 1000),
        (Optimizer("Lion", PARAMETERS, 0, frozenset()), "bitsandbytes.optim.AdamW8bit(", 1000),
    ],
)
@pytest.mark.parametrize("spare_mib", [1, -1])
def test_states_of_8_bits_are_of_the_same_optimizer_or_the_two_of_adamw(optimizer, line, needed_mib, spare_mib, heap):
    fix = found(failed(heap, available=(needed_mib + spare_mib) * MIB, optimizers=[optimizer])).fixes[0]
    assert fix.title.key == ("remedies.optimizer" if spare_mib > 0 else "remedies.shard")
    assert line in fix.change or spare_mib < 0


def test_a_training_that_does_not_fit_is_no_case_of_fragmentation(heap):
    trace = failed(heap, available=999 * MIB)
    (view,) = Context().views(trace)
    growth = growth_in_first_step(look(view, AllocatorSettings.of(trace)))
    assert growth.title.startswith(
        "Parameters, gradients and optimizer states alone need about 1.56 GiB, and 999.00 MiB"
    )


def test_sparse_gradients_depend_on_the_batch(heap):
    sparse = Optimizer("SparseAdam", PARAMETERS, 0, frozenset(), sparse_bytes=PARAMETERS)
    assert needed(found(failed(heap, available=700 * MIB, optimizers=[sparse]))) == [3 * PARAMETERS]
