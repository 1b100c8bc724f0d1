"""A replay that begins in the middle with the state at that point continues like the complete one."""

from __future__ import annotations

from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memdiag.allocator.replay import replay
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Beginning
from memdiag.allocator.workload import Start, Workload
from memdiag.trace.schema import ALLOC, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP
from tests.allocator.recorded_rows import workload_of

MIB = 1 << 20
CONFS = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:32,max_non_split_rounding_mb:64",
    "roundup_power2_divisions:8",
]


def start_after(work: Workload, whole: Replay, calls: int) -> Start:
    """Returns the state after a number of calls, from the log of a replay."""
    log = whole.log or {}
    pages: dict[int, set[int]] = {}  # mapped MiB, by range
    expandable: set[int] = set()
    key: dict[int, tuple[int, int]] = {}
    live: dict[int, tuple[int, int, int]] = {}
    for action, call, seg, off, size, stream, pool, tensor in zip(*(log[name].tolist() for name in log), strict=True):
        if call >= calls:
            break
        where = set(range(off // MIB, (off + size) // MIB))
        if action in (SEGMENT_ALLOC, SEGMENT_MAP):
            pages[seg] = pages.get(seg, set()) | where
            key[seg] = (pool, stream)
            if action == SEGMENT_MAP:
                expandable.add(seg)
        elif action == SEGMENT_FREE:
            del pages[seg]
        elif action == SEGMENT_UNMAP:
            pages[seg] -= where
        elif action == ALLOC:
            live[tensor] = (seg, off, size)
        elif action == FREE_COMPLETED:
            del live[tensor]
    block = dict(
        zip(
            work.tensor[:calls][whole.block[:calls] > 0].tolist(),
            whole.block[:calls][whole.block[:calls] > 0].tolist(),
            strict=True,
        )
    )
    small = {seg: block[tensor] <= MIB for tensor, (seg, _, _) in live.items()}
    rows: list[tuple[Any, ...]] = []
    for seg, mib in sorted(pages.items()):
        base = int(whole.bases[seg])
        pieces = [(base, 0)] if seg in expandable and mib else []
        for at in sorted(mib):
            if pieces and pieces[-1][1] and pieces[-1][0] + pieces[-1][1] == base + at * MIB:
                pieces[-1] = (pieces[-1][0], pieces[-1][1] + MIB)
            else:
                pieces.append((base + at * MIB, MIB))
        is_small = small.get(seg, len(mib) == 2 or (seg in expandable and len(mib) % 20 > 0))
        rows += [(start, size, *key[seg], is_small, seg in expandable, seg) for start, size in pieces]
    bases = np.array([row[0] for row in rows])
    sizes = np.array([row[1] for row in rows])
    blocks = sorted((int(whole.bases[seg]) + off, tensor, requested) for tensor, (seg, off, requested) in live.items())
    of = [int(np.flatnonzero((bases <= at) & (at < bases + sizes))[0]) for at, _, _ in blocks]
    return Start(
        base=bases,
        size=sizes,
        pool=np.array([row[2] for row in rows], np.int32),
        stream=np.array([row[3] for row in rows], np.int32),
        small=np.array([row[4] for row in rows], bool),
        expandable=np.array([row[5] for row in rows], bool),
        order=np.array([row[6] for row in rows], np.int64),
        block_range=np.array(of, np.int32),
        block_off=np.array([at - bases[k] for (at, _, _), k in zip(blocks, of, strict=True)], np.int64),
        block_size=np.array([block[tensor] for _, tensor, _ in blocks], np.int64),
        block_tensor=np.array([tensor for _, tensor, _ in blocks], np.int32),
        block_requested=np.array([requested for _, _, requested in blocks], np.int64),
        block_pending=np.zeros(len(blocks), bool),
    )


def tail(work: Workload, calls: int, start: Start) -> Workload:
    names = ("op", "tensor", "size", "stream", "pool", "row")
    return with_fields(work, start=start, **{name: getattr(work, name)[calls:] for name in names})


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("name", ["train-1-8GiB", "pressure-1-2GiB", "random-1-4GiB"])
def test_goes_on_as_if_it_had_been_there_from_the_beginning(shared: Path, name: str, conf: str) -> None:
    work = workload_of(np.load(shared / "data/oracle" / f"{name}.npz"))
    capacity = work.capacity_bytes
    whole = replay(work, "caching", conf=conf, capacity=capacity, log=True)
    waits = np.flatnonzero(whole.active != whole.allocated)
    calls = next(at for at in range(len(work.op) * 2 // 3, len(work.op)) if at - 1 not in waits)
    start = start_after(work, whole, calls)
    before = 1 + max(whole.log["seg"][whole.log["call"] < calls])  # type: ignore[index]
    rest = replay(
        tail(work, calls, start),
        "caching",
        conf=conf,
        capacity=capacity,
        log=True,
        beginning=Beginning(bases=whole.bases[before:]),
    )
    for column in ("status", "block", "reserved", "allocated", "active", "requested", "off"):
        np.testing.assert_array_equal(getattr(rest, column), getattr(whole, column)[calls:], err_msg=column)
    for column in ("retries", "ooms", "device_allocs", "device_frees"):
        np.testing.assert_array_equal(
            getattr(rest, column), getattr(whole, column)[calls:] - getattr(whole, column)[calls - 1]
        )
    placed = rest.seg >= 0
    np.testing.assert_array_equal(
        rest.bases[rest.seg[placed]] + rest.off[placed],
        whole.bases[whole.seg[calls:][placed]] + whole.off[calls:][placed],
    )


def test_the_tensors_of_a_start_can_be_allocated_first(shared: Path) -> None:
    work = workload_of(np.load(shared / "data/oracle/train-1-8GiB.npz"))
    whole = replay(work, "caching", capacity=work.capacity_bytes, log=True)
    calls = len(work.op) // 2
    middle = tail(work, calls, start_after(work, whole, calls))
    again = replay(middle, "expandable", capacity=work.capacity_bytes, beginning=Beginning(keep_start=False), log=True)
    assert len(again.status) == len(middle.op)
    assert again.requested[0] == whole.requested[calls]
    assert again.device_allocs[0] <= 1
    assert again.log is not None
    assert (again.log["call"][: len(middle.start.block_tensor)] == -1).all()
