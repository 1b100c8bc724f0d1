"""Only the chosen window of steps is recorded, and tensors allocated earlier still have their category and name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np


def test_only_the_window_of_steps_is_recorded(record, compare):
    run = record.train("--steps", "5", "--plain", settings={"first_step": 2, "last_step": 4})
    assert not [line for line in run.done.stderr.splitlines() if "unknown size" in line or line.startswith("memdiag:")]
    assert run.status()["reason"] == "window"
    found = compare(run)
    inside = [number for number, moment in enumerate(run.truth["moments"]) if moment["step"] in {2, 3}]
    assert [number for number, row in enumerate(found.places) if row >= 0] == inside
    assert set(np.unique(found.device.events.step).tolist()) <= {2, 3}
    truth = {**run.truth, "tensors": [said for said in run.truth["tensors"] if said["at"] in inside]}
    found = compare(replace(run, truth=truth))
    assert not [wrong for wrong in found.wrong_phases() if "not in the trace" not in wrong]
    assert found.wrong_tensors() == []
    live = found.device.live(found.device.peak("allocated"))
    unknown = [row for row in live if found.category(row) == "unknown"]
    assert (found.device.tensors.alloc_at[unknown] < 0).all()  # allocated before the window
    if record.device != "cuda":  # on CUDA, a library's workspace is larger than all other tensors
        assert (
            found.device.tensors.requested_bytes[unknown].sum()
            <= 0.01 * found.device.tensors.requested_bytes[live].sum()
        )
