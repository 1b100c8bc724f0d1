"""Best fit without size classes agrees with a reference of plain lists, and serves a recorded training."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memdiag.allocator import workload as w
from memdiag.allocator.policies.best_fit.policy import BEST_FIT
from memdiag.allocator.result import OK, OUT_OF_MEMORY, Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.workload import Workload
from memdiag.errors import MemdiagError
from memdiag.sources.torch_snapshot import read
from memdiag.units import MIB

GPT = Path(__file__).parents[4] / "examples" / "gpt-train.pickle"
SIZES = (1, 512, 513, MIB - 512, MIB, MIB + 1, 3 * MIB // 2, 2 * MIB, 2 * MIB + 1, 5 * MIB, 9 * MIB, 21 * MIB)


@dataclass
class Segment:
    number: int
    stream: int
    size: int
    free: list[tuple[int, int]] = field(default_factory=list)  # offset and bytes, by offset


@dataclass
class Reference:
    """Best fit on lists."""

    capacity: int | None
    segments: list[Segment] = field(default_factory=list)
    num_segments: int = 0

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    def malloc(self, asked: int, stream: int) -> tuple[Segment, int, int] | None:
        """Returns segment, offset and bytes of the block, or None if out of memory."""
        size = max(-(-asked // 512) * 512, 512)
        fitting = [
            (room, segment.number, offset, segment)
            for segment in self.segments
            if segment.stream == stream
            for offset, room in segment.free
            if room >= size
        ]
        if fitting:
            room, _, offset, segment = min(fitting, key=lambda found: found[:3])
        else:
            room = -(-size // (2 * MIB)) * 2 * MIB
            if self.capacity is not None and self.reserved + room > self.capacity:
                self.segments = [each for each in self.segments if each.free != [(0, each.size)]]
                if self.reserved + room > self.capacity:
                    return None
            segment, offset = Segment(self.num_segments, stream, room, [(0, room)]), 0
            self.num_segments += 1
            self.segments.append(segment)
        segment.free.remove((offset, room))
        if room > size:
            segment.free.append((offset + size, room - size))
            segment.free.sort()
        return segment, offset, size

    def release(self, segment: Segment, offset: int, size: int) -> None:
        """Frees a block and merges it with adjacent free blocks."""
        for other in list(segment.free):
            if other[0] + other[1] == offset or offset + size == other[0]:
                segment.free.remove(other)
                offset, size = min(offset, other[0]), size + other[1]
        segment.free.append((offset, size))
        segment.free.sort()


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Returns calls as (op, tensor, size, stream)."""
    calls: list[tuple[int, int, int, int]] = []
    live: list[int] = []
    for tensor in range(draw(st.integers(1, 60))):
        calls.append((w.ALLOC, tensor, draw(st.sampled_from(SIZES)), draw(st.integers(0, 1))))
        live.append(tensor)
        frees = range(min(draw(st.integers(0, 2)), len(live)))
        calls += [(w.FREE, live.pop(draw(st.integers(0, len(live) - 1))), 0, 0) for _ in frees]
    return calls


def workload_of(calls: list[tuple[int, int, int, int]]) -> Workload:
    op, tensor, size, stream = np.array(calls, np.int64).reshape(-1, 4).T
    count = len(calls)
    return Workload(
        op=op.astype(np.int8),
        tensor=tensor.astype(np.int32),
        size=size,
        stream=stream.astype(np.int32),
        pool=np.zeros(count, np.int32),
        row=np.arange(count),
        num_rows=count,
        num_tensors=int(tensor.max(initial=-1)) + 1,
        streams=np.arange(2, dtype=np.uint64),
        done="now",
    )


def replayed(calls: list[tuple[int, int, int, int]], capacity: int | None = None) -> Replay:
    return BEST_FIT.serve(workload_of(calls), None, Scenario("best-fit", capacity_bytes=capacity), log=True)


@settings(max_examples=150, deadline=None)
@given(programs(), st.sampled_from([None, 12, 24, 64]))
def test_every_block_lies_where_the_reference_puts_it(calls: list[tuple[int, int, int, int]], most: int | None) -> None:
    capacity = None if most is None else most * MIB
    found, reference, blocks = replayed(calls, capacity), Reference(capacity), {}
    for at, (op, tensor, size, stream) in enumerate(calls):
        if op == w.ALLOC:
            block = reference.malloc(size, stream)
            if block is None:
                assert found.status[at] == OUT_OF_MEMORY
            else:
                assert (found.status[at], found.seg[at], found.off[at]) == (OK, block[0].number, block[1])
                assert found.block[at] == block[2]
                blocks[tensor] = block
        elif tensor in blocks:
            reference.release(*blocks.pop(tensor))
        assert found.reserved[at] == reference.reserved
        assert found.allocated[at] == sum(size for _, _, size in blocks.values())


def test_small_and_large_requests_share_a_segment() -> None:
    found = replayed([(w.ALLOC, 0, 20 * MIB, 0), (w.FREE, 0, 0, 0), (w.ALLOC, 1, 512, 0), (w.ALLOC, 2, 19 * MIB, 0)])
    assert found.seg.tolist() == [0, -1, 0, 0]
    assert found.reserved[-1] == 20 * MIB


def test_it_has_no_settings() -> None:
    with pytest.raises(MemdiagError, match="the policy best-fit has no settings"):
        BEST_FIT.serve(workload_of([]), None, Scenario("best-fit", "max_split_size_mb:64"))


def test_a_recorded_training_needs_less_than_with_size_classes() -> None:
    trace = read(GPT)
    subject = Subject.of(trace, trace.devices[0])
    peaks = {
        name: int(subject.replay(Scenario(name), log=False).reserved.max()) for name in ("caching", "best-fit", "bound")
    }
    assert peaks["bound"] <= peaks["best-fit"] <= peaks["caching"]
