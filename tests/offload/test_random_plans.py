"""Plans for random programs pass the independent checker of bytes, needs and budgets."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.offload.choose import automatic
from memdiag.offload.clock import Clock
from memdiag.offload.schedule import CPU
from memdiag.offload.settings import OffloadSettings
from memdiag.offload.windows import Windows
from tests.offload.plan_check import ON_DEVICE, ON_DISK, ON_HOST, Life, Stay, problems

NUM_EVENTS = 40
MIB = 1 << 20


@st.composite
def programs(draw):
    """Draws tensors by number, each with separate idle intervals within its lifetime."""
    lives = {}
    for number in range(draw(st.integers(1, 10))):
        born = draw(st.integers(0, NUM_EVENTS - 4))
        dead = draw(st.integers(born + 2, NUM_EVENTS))
        cuts = sorted(draw(st.sets(st.integers(born + 1, dead), max_size=6)))
        lives[number] = Life(
            born, dead, draw(st.integers(1, 900)) * MIB, tuple(zip(cuts[::2], cuts[1::2], strict=False))
        )
    return lives


@given(
    programs(),
    st.floats(0.2, 1),
    st.floats(0.001, 2),
    st.sampled_from(["1GB", "100MB", "1MB"]),
    st.sampled_from(["1TB", "200MB"]),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_every_byte_is_in_one_place_and_back_before_its_use(lives, share, seconds, host, disk, allow):
    rows = [(number, begin, end, life.size) for number, life in lives.items() for begin, end in life.idle]
    tensor, begin, end, size = np.array(rows, np.int64).reshape(-1, 4).T
    windows = Windows(tensor, begin, end, size, size, np.zeros(len(rows), np.int64), np.ones(len(rows), bool))
    events = np.arange(NUM_EVENTS)
    load = sum(np.where((events >= life.born) & (events < life.dead), life.size, 0) for life in lives.values()).astype(
        np.int64
    )
    wanted = {
        "offload_cpu_size": host,
        "offload_disk_size": disk,
        "host_mem_block_size": "10MB",
        "allow_exposed": allow,
    }
    options = OffloadSettings.read(None, wanted)
    target = int(load.max() * share)
    clock = Clock(np.arange(NUM_EVENTS + 1) * seconds, None, 1, is_known=True)
    chosen = automatic(windows, load, target, clock, options)
    moves = chosen.moves
    stays = [
        Stay(int(tensor[window]), ON_HOST if place == CPU else ON_DISK, out, back)
        for window, place, out, back in zip(
            *(getattr(moves, name).tolist() for name in ("window", "place", "out_at", "back_at")), strict=True
        )
        if back > out
    ]
    budgets = {ON_HOST: options.host_bytes, ON_DISK: options.offload_disk_size} | (
        {ON_DEVICE: target} if chosen.is_enough else {}
    )
    assert problems(lives, stays, budgets, NUM_EVENTS) == []
    away = sum(np.where((events >= stay.out) & (events < stay.back), lives[stay.tensor].size, 0) for stay in stays)
    assert (chosen.load == load - away).all()
