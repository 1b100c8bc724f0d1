"""The peak without some tensors is exact for tensors from before the trace and from within it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memdiag.analyzers.support.without import from_next_steps, peak_without, saving_without
from memdiag.trace.schema import PHASES
from tests.training import Training


@pytest.fixture
def program():
    trained = Training()
    trained.initialise()
    trained.step()
    return trained


def test_a_state_without_history_has_a_peak_too(program):
    (device,) = program.trace(first=len(program.entries)).devices
    assert not device.num_events
    size = device.tensors.block_bytes
    assert peak_without(device, np.arange(len(size))[:2]).value == size[2:].sum() > 0


@pytest.mark.parametrize("first", [0, 12])
def test_it_is_the_highest_of_what_the_others_hold(program, first):
    (device,) = program.trace(first=first).devices
    rows = np.flatnonzero(device.tensors.block_bytes >= program.size)[::2]
    others = [np.setdiff1d(device.live(at), rows) for at in range(-1, device.num_events)]
    assert peak_without(device, rows).value == max(int(device.tensors.block_bytes[live].sum()) for live in others)


def test_a_saving_is_the_fall_of_the_allocated_peak(program):
    (device,) = program.trace().devices
    rows = np.flatnonzero(device.tensors.block_bytes >= program.size)[::2]
    fall = int(device.usage.allocated.max()) - peak_without(device, rows).value
    saving = saving_without(device, rows)
    assert (saving.low_bytes, saving.expected_bytes, saving.high_bytes, saving.basis) == (0, fall, fall, "estimated")
    assert saving_without(device, rows, at_most=2 * fall).high_bytes == 2 * fall
    assert saving_without(device, rows[:0]) is None


@pytest.mark.parametrize("phase", ["forward", "outside"])
def test_a_step_needs_its_own_tensors_also_if_it_keeps_nothing(phase):
    program = Training()
    program.initialise()
    for _ in range(4):
        program.step(leak=64 * program.size)
    (device,) = program.trace().devices
    made_in = np.full(len(device.tensors), PHASES.index(phase), np.int8)
    device = replace(device, tensors=device.tensors.replace(phase_alloc=made_in))
    tensors = device.tensors
    rows = np.flatnonzero(tensors.block_bytes == 64 * program.size)
    since = from_next_steps(device, rows)
    left = peak_without(device, rows, since=since).value
    if phase == "outside":
        assert (since == tensors.alloc_at[rows]).all()
        assert left == peak_without(device, rows).value
    else:
        assert (device.events.step[since[:-1]] == tensors.step_alloc[rows[1:]]).all()
        assert left > peak_without(device, rows).value + 60 * program.size
