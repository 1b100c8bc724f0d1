"""Stitching serves each scenario as GMLake does; its report and its trace agree with the replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memdiag.allocator import workload as w
from memdiag.allocator.as_trace import as_trace
from memdiag.allocator.policies.gmlake.policy import GMLAKE
from memdiag.allocator.policies.gmlake.replay import replay_stitch
from memdiag.allocator.policies.gmlake.settings import ON_NPU, GMLakeSettings
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.errors import MemdiagError
from memdiag.sources.event_npz import read
from memdiag.units import GIB
from tests.allocator.policies.gmlake.stitch_program import Program, check
from tests.allocator.policies.gmlake.stitch_reference import MIB

ALWAYS = GMLakeSettings(frag_limit_bytes=2 * MIB)


def holes(*sizes: int) -> Program:
    """Creates free blocks of these sizes, each between used blocks; tensors from 100 on are available."""
    program = Program()
    for number, size in enumerate(sizes):
        program.alloc(2 * number, size).alloc(2 * number + 1, size)
    return program.free(*range(0, 2 * len(sizes), 2))


def test_a_free_block_of_just_the_size_comes_first_then_a_larger_one_which_is_cut() -> None:
    found = check(holes(40 * MIB, 60 * MIB).alloc(100, 40 * MIB).alloc(101, 30 * MIB), ALWAYS)
    assert found.how is not None
    assert found.how[-2:].tolist() == [0, 1]
    assert found.device_allocs[-1] == 4


def test_several_free_blocks_serve_one_request_the_largest_first_and_the_last_one_is_cut() -> None:
    found = check(holes(40 * MIB, 60 * MIB).alloc(100, 90 * MIB).alloc(101, 10 * MIB), ALWAYS)
    assert found.num_pieces is not None
    assert found.num_pieces[-2:].tolist() == [2, 1]
    # the tensor begins in the block of 60 MiB; the remainder of the one of 40 MiB is reused
    assert found.seg[-2:].tolist() == [
        2,
        0,
    ]
    assert found.reserved[-1] == 200 * MIB
    told = found.stitching
    assert told is not None
    assert (told.num_stitched, told.stitched_bytes, told.num_maps - told.num_created) == (1, 90 * MIB, 45)


def test_a_stitched_block_serves_again_when_all_of_it_is_free_up_to_the_limit_of_reuse() -> None:
    program = (
        holes(40 * MIB, 60 * MIB).alloc(100, 90 * MIB).free(100).alloc(101, 80 * MIB).free(101).alloc(102, 8 * MIB)
    )
    found = check(program.alloc(103, 90 * MIB), ALWAYS)
    assert found.how is not None
    # 8 MiB fit into a free block; then a part of the stitched block is in use, and free blocks are stitched again.
    assert found.how[-4:].tolist() == [2, -1, 1, 3]
    assert found.stitching is not None
    assert found.stitching.num_reused == 1
    strict = check(
        holes(40 * MIB, 60 * MIB).alloc(100, 90 * MIB).free(100).alloc(101, 80 * MIB),
        GMLakeSettings(2 * MIB, reuse_limit=1.0),
    )
    assert strict.stitching is not None
    assert (strict.stitching.num_reused, strict.stitching.num_stitched) == (0, 2)


def test_too_little_is_free_so_that_new_memory_is_needed_all_of_it_or_what_is_missing() -> None:
    program = holes(40 * MIB, 60 * MIB).alloc(100, 120 * MIB)
    assert check(program, ALWAYS).reserved[-1] == 320 * MIB
    found = check(program, GMLakeSettings(2 * MIB, adds_missing=True))
    assert found.reserved[-1] == 220 * MIB
    assert found.num_pieces is not None
    assert found.num_pieces[-1] == 3


def test_below_the_limit_and_among_small_ones_nothing_is_stitched() -> None:
    assert check(holes(40 * MIB, 60 * MIB).alloc(100, 90 * MIB), GMLakeSettings()).reserved[-1] == 290 * MIB
    small = Program()
    for tensor in range(4):
        small.alloc(tensor, MIB)
    assert check(small.free(0, 2).alloc(9, MIB), ALWAYS).device_allocs[-1] == 2


def test_levels_say_whether_stitching_comes_before_new_memory_after_it_or_last() -> None:
    program = holes(40 * MIB, 60 * MIB).alloc(100, 90 * MIB)
    for level, capacity, reserved in ((0, None, 200), (1, None, 290), (1, 200 * MIB, 200), (2, None, 290)):
        assert check(program, GMLakeSettings(2 * MIB, level=level), capacity).reserved[-1] == reserved * MIB
    # the retry first releases the cache: two whole ranges
    last = check(program, GMLakeSettings(2 * MIB, level=2), 200 * MIB)
    assert (last.reserved[-1], last.retries[-1], last.ooms[-1]) == (190 * MIB, 1, 0)


def test_streams_do_not_share_and_what_another_stream_still_uses_is_not_stitched() -> None:
    program = holes(40 * MIB, 60 * MIB).alloc(100, 90 * MIB, 1)
    assert check(program, ALWAYS).reserved[-1] == 290 * MIB
    waiting = (
        Program(done="manual")
        .alloc(0, 40 * MIB)
        .alloc(1, 60 * MIB)
        .call(w.RECORD_STREAM, 0, 0, 1)
        .free(0, 1)
        .alloc(2, 90 * MIB)
    )
    waiting.call(w.SYNC).free(2).alloc(3, 130 * MIB)
    found = check(waiting, ALWAYS)
    assert found.reserved.tolist()[5::3] == [190 * MIB, 190 * MIB]


def test_stitched_blocks_go_with_their_memory_and_above_the_limit_of_collection() -> None:
    program = holes(40 * MIB, 60 * MIB).alloc(100, 90 * MIB).free(100)
    gone = check(program.call(w.EMPTY_CACHE), ALWAYS)
    assert gone.stitching is not None
    assert gone.stitching.num_unstitched == 1
    assert gone.reserved[-1] == 100 * MIB
    kept = holes(40 * MIB, 60 * MIB).alloc(100, 90 * MIB).free(100).alloc(101, 96 * MIB)
    replay = check(kept, GMLakeSettings(2 * MIB, collect_bytes=100 * MIB))
    assert replay.stitching.num_unstitched == 1  # type: ignore[union-attr]


def test_what_no_device_has_is_not_granted() -> None:
    found = replay_stitch(
        Program().alloc(0, 1 << 59).alloc(1, 1 << 62).alloc(2, MIB).workload(), GMLakeSettings(), Scenario("stitch")
    )
    assert found.status.tolist() == [1, 1, 0]


def test_variables_and_settings_are_read_and_others_refused() -> None:
    read_ = GMLakeSettings.parse(
        "fragLimit=4194304,reuseLimit=2.5,defragLevel=1,autoGC=3,reAlloc=1,max_split_size_mb:64"
    )
    assert read_ == GMLakeSettings(4 * MIB, 2.5, 1, 3 * GIB, adds_missing=True, max_split_bytes=64 * MIB)
    assert GMLakeSettings.parse("") == GMLakeSettings()
    assert GMLakeSettings.parse("", ON_NPU) == ON_NPU
    for wrong in (
        "fragLimit=x",
        "reuseLimit=0.5",
        "reuseLimit=nan",
        "vmmDefragment=0",
        "expandable_segments:True",
        "autoGC=-1",
    ):
        with pytest.raises(MemdiagError):
            GMLakeSettings.parse(wrong)
    assert GMLAKE.effective_conf("fragLimit=4194304,max_split_size_mb:64") == "max_split_size_mb:64"
    assert GMLAKE.inherit_conf({"expandable_segments": "True", "max_split_size_mb": "64"}) == {
        "max_split_size_mb": "64"
    }


def test_as_a_trace_every_piece_is_a_tensor_and_the_curves_are_the_same(tmp_path: Path) -> None:
    dice = np.random.default_rng(7)
    rows: list[tuple[int, int, int]] = []
    live: list[int] = []
    for tensor in range(300):
        rows.append((1, tensor, int(dice.choice((700, 3 * MIB + 5, 9 * MIB, 40 * MIB, 61 * MIB, 77 * MIB + 1)))))
        live.append(tensor)
        while len(live) > 12 or (live and dice.random() < 0.45):
            rows.append((-1, live.pop(dice.integers(len(live))), 0))
    path = _plain_events(tmp_path, rows)
    trace = read(path)
    subject = Subject.of(trace, trace.devices[0])
    default = GMLAKE.prepare(trace, trace.devices[0], subject.workload)
    found = GMLAKE.serve(subject.workload, default, Scenario("stitch", "fragLimit=2097152"), log=True)
    assert found.stitching is not None
    assert found.stitching.num_stitched > 2
    simulated = as_trace(found, subject.workload, trace, trace.devices[0], kept_start=False).device
    for curve in ("reserved", "allocated", "active", "requested"):
        assert simulated.usage[curve].max() == getattr(found, curve).max()
    assert len(simulated.tensors) == found.num_pieces.sum()  # type: ignore[union-attr]


def _plain_events(folder: Path, rows: list[tuple[int, int, int]]) -> Path:
    ops = ("alloc", "free")
    path = folder / "events.npz"
    columns = {name: np.array([row[at] for row in rows]) for at, name in ((1, "id"), (2, "size"))}
    np.savez(path, op=np.array([int(kind < 0) for kind, _, _ in rows], np.int8), ops=np.array(ops), **columns)
    return path
