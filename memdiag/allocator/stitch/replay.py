"""Replays a workload through GMLake's allocator.

Private pools are unknown to it: everything lands in one pool a stream. A tensor in a stitched block has one address there, which is none of
memory: where its first piece lies is told instead, and in the log each piece is an entry of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.conf import Conf
from memdiag.allocator.engine import memory as mem
from memdiag.allocator.engine.start import with_start_allocated
from memdiag.allocator.engine.state import enlarge, new_state, segments
from memdiag.allocator.replay import DONE
from memdiag.allocator.result import OK, Replay
from memdiag.allocator.rules import Rules
from memdiag.allocator.stitch import driver, machine, pieces, waiting
from memdiag.allocator.stitch.settings import NO_LIMIT, Settings
from memdiag.allocator.workload import Workload
from memdiag.results.stitching import Stitching
from memdiag.trace.table import Array

_MOST_SIZE = 1 << 60
_MOST_MEMORY = 1 << 46  # every chunk is kept track of: what no device has is not granted, without a limit either
_RULES = Rules(whole_fraction_is_limit=True)  # those of torch 2.0, which it was made from
_GRAIN = 512


@dataclass(frozen=True)
class StitchReplay(Replay):
    """A replay, and what stitching did; the columns have a value a call.

    Attributes:
        stitching: Never None.
        how: Of an allocation, how it got its memory (``machine.EXACT`` …); -1: no allocation (int8).
        num_pieces: Of an allocation (int32).
        maps: Calls that map a chunk, counted from the first call on (int64).
    """

    stitching: Stitching | None = None
    how: Array | None = None
    num_pieces: Array | None = None
    maps: Array | None = None


def replay_stitch(
    workload: Workload,
    settings: Settings,
    *,
    conf: str = "",
    capacity: int | None = None,
    fraction: float | None = None,
    torch_version: str = "",
    log: bool = False,
    policy: str = "stitch",
) -> StitchReplay:
    """Replays ``workload``; tensors that were there at the start are made first, by address.

    Args:
        workload: What the program asked for.
        settings: How it stitches.
        conf: Text that ``settings`` were read from, and
        torch_version, policy: names said in the result.
        capacity: Bytes of the device; None: unlimited.
        fraction: Share of the device that the process may have.
        log: Whether the allocator's entries are kept.
    """
    num_calls = len(workload.op)
    if len(workload.start.base):
        workload = with_start_allocated(workload)
    first = len(workload.op) - num_calls
    max_split = None if settings.max_split_bytes >= NO_LIMIT else settings.max_split_bytes
    num_streams = max(len(workload.streams), 1)
    own = Conf(max_split=max_split, fraction=fraction)
    r, m = new_state(own, _RULES, capacity, num_streams, 1, DONE[workload.done], np.empty(0, np.int64), (), ())
    limit = int(r[mem.LIMIT])
    r[mem.FREE_BYTES] = min(int(r[mem.FREE_BYTES]), _MOST_MEMORY)
    k = _kept(r, m, settings, capacity, num_streams)
    op, tensor, stream = (column.astype(np.int64) for column in (workload.op, workload.tensor, workload.stream))
    size = np.where(op == w.ALLOC, np.clip(workload.size, 0, _MOST_SIZE), workload.size).astype(np.int64)
    rounded = rounded_sizes(size)
    most = np.minimum(rounded * settings.reuse_limit, float(_MOST_SIZE)).astype(np.int64)
    granted = rounded[(op == w.ALLOC) & (rounded <= _MOST_MEMORY)]  # only what may be granted needs chunks
    largest = max(int(granted.max(initial=0)), driver.LARGE_SEGMENT) // pieces.CHUNK
    used = np.zeros(4096 + largest, np.int8)
    entries = np.zeros((len(mem.LOG_COLUMNS), 4 * len(op) if log else 0), np.int64)
    r[mem.IS_LOGGED], r[mem.LOG_CAPACITY] = log, entries.shape[1]
    out = np.empty((machine.NUM_OUT, len(op)), np.int64)
    life = np.zeros((max(workload.num_tensors, 1), waiting.NUM_LIFE), np.int64)
    while machine.run(r, m, entries, k, used, out, life, op, tensor, size, stream, rounded, most, largest) < len(op):
        m, entries = enlarge(r, m, entries)
        if k[pieces.NEXT_CHUNK] + largest > len(used):
            used = np.append(used, np.zeros(len(used) + largest, np.int8))
    before = out[:, first - 1] if first else np.zeros(machine.NUM_OUT, np.int64)

    def counted(row: int, dtype: str = "int32") -> Array:
        counts: Array = (out[row, first:] - before[row]).astype(dtype)
        return counts

    return StitchReplay(
        policy=policy,
        conf=conf,
        torch_version=torch_version,
        capacity_bytes=capacity,
        limit_bytes=limit if limit >= 0 else None,
        status=out[machine.OUT_STATUS, first:].astype(np.int8),
        seg=out[machine.OUT_SEG, first:].astype(np.int32),
        off=out[machine.OUT_OFF, first:],
        block=out[machine.OUT_BLOCK, first:],
        reserved=out[machine.OUT_RESERVED, first:],
        allocated=out[machine.OUT_ALLOCATED, first:],
        active=out[machine.OUT_ACTIVE, first:],
        requested=out[machine.OUT_REQUESTED, first:],
        retries=counted(machine.OUT_RETRIES),
        ooms=out[machine.OUT_OOMS, first:].astype(np.int32),  # the start may not fit
        device_allocs=counted(machine.OUT_DEVICE_ALLOCS),
        device_frees=counted(machine.OUT_DEVICE_FREES),
        bases=segments(r, m),
        log=_log(entries[:, : r[mem.NUM_LOGGED]], first) if log else None,
        stitching=_told(settings, k, out, rounded),
        how=out[machine.OUT_HOW, first:].astype(np.int8),
        num_pieces=out[machine.OUT_PIECES, first:].astype(np.int32),
        maps=counted(machine.OUT_MAPS, "int64"),
    )


def rounded_sizes(sizes: Array) -> Array:
    """Returns the bytes of the blocks for requests (int64): a small one in units of 512 bytes, a large one in whole chunks."""
    small = np.maximum(-(-sizes // _GRAIN), 1) * _GRAIN
    return np.where(small <= driver.MOST_SMALL, small, -(-small // pieces.CHUNK) * pieces.CHUNK)


def _kept(r: Array, m: Array, settings: Settings, capacity: int | None, num_streams: int) -> Array:
    """Returns what is kept beside the registers, with an empty set of stitched blocks for each stream."""
    k = np.zeros(pieces.NUM_KEPT, np.int64)
    k[pieces.FRAG_LIMIT], k[pieces.LEVEL], k[pieces.COLLECT_ABOVE] = settings.frag_limit_bytes, settings.level, settings.collect_bytes
    k[pieces.ADDS_MISSING], k[pieces.CAPACITY] = settings.adds_missing, -1 if capacity is None else capacity
    k[[pieces.LAST_WAITING, pieces.FIRST_WAITING]] = -1
    heads = [int(mem.new_row(r, m)) for _ in range(num_streams)]
    for head in heads:
        m[[head + mem.SUCC, head + mem.PRED]] = head
    k[pieces.HEADS] = heads[0]
    return k


def _told(settings: Settings, k: Array, out: Array, rounded: Array) -> Stitching:
    how, done = out[machine.OUT_HOW], out[machine.OUT_STATUS] == OK
    large = done & (rounded > driver.MOST_SMALL)
    count = [int(np.count_nonzero(large & (how == which))) for which in range(machine.NOTHING)]
    stitched = (how == machine.STITCHED) | (how == machine.ADDED)
    return Stitching(
        frag_limit_bytes=settings.frag_limit_bytes,
        num_exact=count[machine.EXACT],
        num_cut=count[machine.CUT],
        num_reused=count[machine.REUSED],
        num_stitched=count[machine.STITCHED] + count[machine.ADDED],
        stitched_bytes=int(rounded[done & stitched].sum()),
        num_new=count[machine.NEW] + count[machine.ADDED],
        num_pieces=int(out[machine.OUT_PIECES].max(initial=0)),
        num_maps=int(k[pieces.NUM_MAPPED]),
        num_created=int(k[pieces.NUM_CREATED]),
        num_unmaps=int(k[pieces.NUM_UNMAPPED]),
        num_taken_apart=int(k[pieces.NUM_TAKEN_APART]),
        peak_stitched_bytes=int(k[pieces.PEAK_STITCHED]),
    )


def _log(entries: Array, first: int) -> dict[str, Array]:
    """Returns the entries as columns, those of what was there at the start as of call -1."""
    columns = dict(zip(mem.LOG_COLUMNS, entries, strict=True))
    columns["call"] = np.maximum(columns["call"] - first, -1)
    return columns
