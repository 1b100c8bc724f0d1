"""Programs that control the allocator's history themselves get their snapshots, and the recording keeps its events."""

from __future__ import annotations

import pickle

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("way", "steps", "has_gap"),
    [("start", 4, False), ("dump", 4, False), ("stop", 2, True), ("window", 4, True), ("clear", 2, True)],
)
def test_a_program_that_controls_the_history_is_recorded(accelerator, way, steps, has_gap):
    """The program prints the same, and a note reports the gap if the program stops or clears the history.

    ``stop`` and ``clear`` act after two steps. ``window`` stops after four steps and records one more, which is not
    used because it has fewer events.
    """
    if (way, accelerator.device) == ("clear", "npu"):
        pytest.skip("the history of an NPU cannot be cleared")
    file = str(accelerator.folder / "own.pickle")
    with_us = accelerator("own_history.py", accelerator.device, way, file)
    without = accelerator("own_history.py", accelerator.device, way, file, recorded=False)
    assert with_us.done.stdout == without.done.stdout
    told = [line for line in with_us.done.stderr.splitlines() if line.startswith("memdiag:")]
    assert all("the program itself" in line for line in told)
    assert bool(told) == has_gap
    assert set(np.unique(with_us.device.events.step).tolist()) == set(range(-1, steps))
    assert ("MD922" in {note.code for note in with_us.trace.notes}) == has_gap
    own = pickle.loads(with_us.path().read_bytes())["memdiag"]
    assert own["max_events"] == (2_000_000 if way in {"dump", "clear"} else 50_000)
