"""Stitching agrees with the reference in plain objects on all kinds of programs, and keeps its invariants."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.allocator import workload as w
from memdiag.allocator.policies.gmlake.replay import StitchReplay
from memdiag.allocator.policies.gmlake.settings import NO_LIMIT, GMLakeSettings
from memdiag.trace import schema
from tests.allocator.policies.gmlake.stitch_program import Program, check, replayed, rows_of
from tests.allocator.policies.gmlake.stitch_reference import CHUNK, MIB

# A few sizes around every boundary; there are few, so that they repeat.
SIZES = (
    1,
    512,
    700,
    400 * 1024,
    MIB,
    MIB + 1,
    2 * MIB,
    2 * MIB + 1,
    3 * MIB,
    4 * MIB,
    6 * MIB,
    9 * MIB,
    10 * MIB,
    13 * MIB,
    20 * MIB,
    24 * MIB,
    31 * MIB,
    40 * MIB,
    41 * MIB,
    64 * MIB,
    90 * MIB,
)
OTHERS = (w.EMPTY_CACHE, w.SYNC, w.COMPLETE, w.EXTERNAL, w.SET_FRACTION)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draws any calls in any order, including frees of freed and of unknown tensors."""
    dice = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    program = Program(done=("recorded", "manual", "now")[dice.integers(3)])
    sizes, num_streams, frees = dice.choice(SIZES, dice.integers(1, 8)), dice.integers(1, 4), dice.uniform(0.4, 0.7)
    live: list[int] = []
    waiting: list[int] = []
    for tensor in range(dice.integers(1, 90)):
        while live and dice.random() < frees:
            gone = live.pop(dice.integers(len(live)))
            if dice.random() < 0.2:
                program.call(w.RECORD_STREAM, gone, 0, int(dice.integers(num_streams)))
            if program.done == "recorded" and dice.random() < 0.3:
                program.call(w.FREE_REQUESTED, gone)
                waiting.append(gone)
            else:
                program.free(gone)
        while waiting and dice.random() < 0.3:
            program.call(w.FREE_COMPLETED, waiting.pop(dice.integers(len(waiting))))
        if dice.random() < 0.08:
            op = OTHERS[dice.integers(len(OTHERS))]
            size = {w.EXTERNAL: int(dice.integers(4)) * 16 * MIB, w.SET_FRACTION: 9 * 10**8}.get(op, 0)
            program.call(op, -1, size, int(dice.integers(num_streams)))
        if dice.random() < 0.03:
            program.free(int(dice.integers(tensor + 1)))
        program.alloc(tensor, int(dice.choice(sizes)), int(dice.random() < 0.2 and dice.integers(num_streams)))
        live.append(tensor)
    return program


any_settings = st.builds(
    GMLakeSettings,
    frag_limit_bytes=st.sampled_from((0, 2 * MIB, 12 * MIB, 512 * MIB)),
    reuse_limit=st.sampled_from((1.0, 1.5, 10.0)),
    level=st.sampled_from((0, 0, 0, 1, 2, 3)),
    collect_bytes=st.sampled_from((1 << 40, 1 << 40, 100 * MIB, 0)),
    adds_missing=st.booleans(),
    max_split_bytes=st.sampled_from((NO_LIMIT, NO_LIMIT, 21 * MIB, 40 * MIB)),
)
any_capacity = st.sampled_from((None, 64 * MIB, 128 * MIB, 256 * MIB))
any_fraction = st.sampled_from((None, None, 0.7))


@settings(max_examples=200)
@given(programs(), any_settings, any_capacity, any_fraction)
def test_any_program_goes_as_in_the_reference(
    program: Program, chosen: GMLakeSettings, capacity: int | None, fraction: float | None
) -> None:
    check(program, chosen, capacity, fraction=fraction)


@settings(max_examples=60)
@given(programs(), any_settings, any_capacity)
def test_no_chunk_has_two_owners_and_sums_are_right(
    program: Program, chosen: GMLakeSettings, capacity: int | None
) -> None:
    verify(program, replayed(program, chosen, capacity))


@settings(max_examples=30)
@given(programs(), any_settings, any_capacity, st.data())
def test_what_comes_later_changes_nothing(
    program: Program, chosen: GMLakeSettings, capacity: int | None, data: st.DataObject
) -> None:
    whole = rows_of(replayed(program, chosen, capacity))
    cut = data.draw(st.integers(0, len(program.calls)))
    assert rows_of(replayed(Program(program.calls[:cut], program.done), chosen, capacity)) == whole[:cut]


def verify(program: Program, replay: StitchReplay) -> None:
    """Verifies the log alone: owners of the driver's bytes, and their streams."""
    log = replay.log
    assert log is not None
    owner: dict[int, np.ndarray] = {}
    stream_of: dict[int, int] = {}
    sizes: dict[int, list[int]] = {}
    unit_of: dict[int, int] = {}
    reserved = 0
    columns = [log[name].tolist() for name in ("action", "call", "seg", "off", "size", "stream", "tensor")]
    for action, call, seg, off, size, stream, tensor in zip(*columns, strict=True):
        if action == schema.SEGMENT_ALLOC:
            owner[seg], stream_of[seg] = np.full(size // 512, -1), stream
            reserved += size
        elif action == schema.SEGMENT_FREE:
            assert (owner.pop(seg) == -1).all()
            reserved -= size
        elif action == schema.ALLOC:
            assert stream_of[seg] == stream == program.calls[call][3]
            unit = unit_of[tensor] = CHUNK if program.calls[call][2] > MIB else 512
            assert off % unit == 0
            end = off + -(-size // unit) * unit
            assert end <= len(owner[seg]) * 512
            assert (owner[seg][off // 512 : end // 512] == -1).all()
            owner[seg][off // 512 : end // 512] = tensor
            sizes.setdefault(tensor, []).append(size)
        elif action == schema.FREE_COMPLETED:
            end = off + -(-size // unit_of[tensor]) * unit_of[tensor]
            assert (owner[seg][off // 512 : end // 512] == tensor).all()
            owner[seg][off // 512 : end // 512] = -1
            sizes[tensor].remove(size)
    assert reserved == (replay.reserved[-1] if len(replay.reserved) else 0)
    live = [sum(pieces) for pieces in sizes.values() if pieces]
    assert sum(live) == (replay.requested[-1] if len(replay.requested) else 0)
    assert (replay.active <= replay.reserved).all()
    assert (replay.requested <= replay.active).all()
