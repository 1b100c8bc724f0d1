"""FSDP units are recognised by their gather requests, and reported if one unit has most of a forward's bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers import gathered
from memdiag.analyzers.support.context import Context
from memdiag.trace.schema import PHASES
from tests.training import MAIN, MIB, Frame, Training

_FSDP = "/env/lib/python3.11/site-packages/torch/distributed/fsdp/"
SECOND = (Frame(_FSDP + "_fully_shard/_fsdp_collectives.py", 351, "foreach_all_gather"), MAIN)
FIRST = (Frame(_FSDP + "_flat_param.py", 1300, "_alloc_padded_unsharded_flat_param"), MAIN)


LOGITS = (Frame(_FSDP[: -len("fsdp/")] + "_functional_collectives.py", 209, "all_gather_single"), MAIN)


def found(units, frames=SECOND, *, fails=False, passes=1, logits=0):
    """Returns the findings for a forward whose units gather these MiB in turn; the largest is live at the peak.

    ``logits``: MiB that another collective gathers meanwhile.
    """
    program = Training(size=8 * MIB)
    program.initialise()
    program.now = 0
    for _ in range(passes):
        program.phase = "forward"
        for size in units:
            unit = program.alloc(size * MIB, frames, "collective")
            if logits:
                program.passing(logits * MIB, LOGITS)
            program.free(unit)
        program.phase = "backward"
        program.passing(MIB, (MAIN,))
    program.phase = "forward"
    if fails:
        program.fail(1 << 41, frames)
    trace = program.trace()
    (device,) = trace.devices
    phase = np.array([PHASES.index(name) for name in program.phases], np.int8)
    step = np.where(phase == PHASES.index("forward"), 0, -1).astype(np.int32)
    device = replace(device, events=device.events.replace(phase=phase, step=step))
    return list(gathered.analyze(replace(trace, devices=(device,)), Context()))


@pytest.mark.parametrize("frames", [SECOND, FIRST])
def test_a_unit_that_is_most_of_the_model(frames):
    (finding,) = found([500, 40, 40], frames)
    facts = {fact.what.key: fact.value for fact in finding.evidence}
    assert facts["gathered.largest"] == 500 * MIB
    assert facts["gathered.forward"] == 580 * MIB
    assert finding.saving.high_bytes == 499 * MIB == 2 * finding.saving.expected_bytes, "1 MiB is live in backward"
    assert "fully_shard(model.embedding)" in finding.fixes[0].change, "blocks are wrapped: it is what is beside them"


@pytest.mark.parametrize("passes", [1, 4])
def test_the_model_as_one_unit(passes):
    (finding,) = found([500], passes=passes)
    assert "fully_shard(block)" in finding.fixes[0].change


def test_a_unit_for_each_block_is_as_it_should_be():
    assert not found([100, 100, 100, 100])
    assert not found([500], (Frame("/app/train.py", 3, "forward"), MAIN))


def test_other_collectives_gather_no_weights():
    assert found([80, 10, 10])
    assert not found([80, 10, 10], logits=800)


PAGE_EXAMPLES = {
    "MD129": lambda: found([500]),
}
