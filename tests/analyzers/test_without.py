"""The peak without some tensors is exact for tensors from before the trace and from within it."""

from __future__ import annotations

import numpy as np
import pytest

from memdiag.analyzers.support.without import peak_without, saving_without
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
