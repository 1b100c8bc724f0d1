"""Replays a workload through GMLake's allocator.

GMLake has no private pools: all requests of a stream go to one pool. A tensor in a stitched block has a virtual address
that belongs to no segment. Its reported place is that of its first primitive block, and in the log each primitive block
is a separate entry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.engine.memory import LOG_ALL, LOG_NOTHING, new_record
from memdiag.allocator.engine.model import Model, Setup
from memdiag.allocator.engine.start import with_start_allocated
from memdiag.allocator.policies.gmlake import loop
from memdiag.allocator.policies.gmlake.blocks import CHUNK, STITCHING, TENSOR, GMLake
from memdiag.allocator.policies.gmlake.detail import Stitching
from memdiag.allocator.policies.gmlake.settings import NO_LIMIT, GMLakeSettings
from memdiag.allocator.result import OK, Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import Workload
from memdiag.sizes.cuda import LARGE_SEGMENT, SMALL_LIMIT
from memdiag.trace.layout import Layout
from memdiag.trace.table import Array

_MOST_SIZE = 1 << 60
_MOST_MEMORY = 1 << 46  # bytes, more than any device has: a bound, because every chunk is tracked
_RULES = Rules(whole_fraction_is_limit=True, capacity_is_asked=True)  # of torch 2.0, on which GMLake is based


@dataclass(frozen=True)
class StitchReplay(Replay):
    """A replay with results of stitching; the columns have one value per call.

    Attributes:
        stitching: Statistics; never None.
        how: How an allocation was served (``loop.EXACT`` …); -1: not an allocation (int8).
        num_pieces: Number of primitive blocks of an allocation (int32).
        maps: Driver calls that mapped a chunk so far (int64).
    """

    stitching: Stitching | None = None
    how: Array | None = None
    num_pieces: Array | None = None
    maps: Array | None = None


def replay_stitch(
    workload: Workload,
    settings: GMLakeSettings,
    scenario: Scenario,
    *,
    log: bool = False,
) -> StitchReplay:
    """Replays ``workload``; tensors from before the start are allocated first, by address.

    Args:
        workload: The calls of the program.
        settings: The settings of stitching.
        scenario: The device; policy, settings and version are only names for the result.
        log: Keep the allocator's entries.
    """
    num_calls = len(workload.op)
    if len(workload.start.base):
        workload = with_start_allocated(workload)
    first = len(workload.op) - num_calls
    of_pools = np.isin(workload.op, (w.POOL_BEGIN, w.POOL_END, w.POOL_RELEASE, w.CAPTURE))
    size = np.where(workload.op == w.ALLOC, np.clip(workload.size, 0, _MOST_SIZE), workload.size)
    none: frozenset[int] = frozenset()
    workload = replace(
        workload,
        op=np.where(of_pools, w.NOTHING, workload.op),
        size=size,
        pools=((0, 0),),
        no_split=none,
        stand_in=none,
        captured=none,
    )
    max_split = None if settings.max_split_bytes >= NO_LIMIT else settings.max_split_bytes
    rounded = rounded_sizes(workload.size)
    model = Model.of(
        workload,
        Setup(
            Conf(max_split=max_split),
            _RULES,
            scenario.capacity_bytes,
            scenario.fraction,
            LOG_ALL if log else LOG_NOTHING,
            num_own_results=loop.NUM_OWN_RESULTS,
        ),
        (rounded, rounded),
        np.zeros(len(workload.op), np.int64),
        first=len(workload.op) - num_calls,
    )
    model.state.device_free = min(int(model.state.device_free), _MOST_MEMORY)
    model.out[loop.OUT_HOW], model.out[loop.OUT_PRIMITIVES] = -1, 0
    own = _own(model, workload, settings, rounded)

    def grow() -> GMLake:
        nonlocal own
        stitching = own.stitching
        if stitching.next_chunk + stitching.largest > len(own.used):
            own = own._replace(used=np.append(own.used, np.zeros(len(own.used) + stitching.largest, np.int8)))
        return own

    model.run(loop.run, own, grow=grow)
    first, maps = model.first, model.out[loop.OUT_MAPS]
    return StitchReplay.from_columns(
        scenario,
        model.columns(),
        stitching=_detail(settings, own.stitching, model.out, rounded),
        how=model.out[loop.OUT_HOW, first:].astype(np.int8),
        num_pieces=model.out[loop.OUT_PRIMITIVES, first:].astype(np.int32),
        maps=maps[first:] - (maps[first - 1] if first else 0),
    )


def rounded_sizes(sizes: Array) -> Array:
    """Returns the block sizes of requests (int64): multiples of 512 bytes if small, whole chunks if large."""
    small = Layout().round_size(sizes)
    return np.where(small <= SMALL_LIMIT, small, -(-small // CHUNK) * CHUNK)


def _own(model: Model, workload: Workload, settings: GMLakeSettings, rounded: Array) -> GMLake:
    """Returns GMLake's state in addition to the nodes, with an empty set of stitched blocks for each stream."""
    stitching, state = new_record(STITCHING), model.state
    stitching.frag_limit, stitching.level, stitching.collect_above = (
        settings.frag_limit_bytes,
        settings.level,
        settings.collect_bytes,
    )
    stitching.adds_missing, stitching.last_waiting, stitching.first_waiting = settings.adds_missing, -1, -1
    granted = rounded[(workload.op == w.ALLOC) & (rounded <= _MOST_MEMORY)]  # others need no chunks
    stitching.largest = max(int(granted.max(initial=0)), LARGE_SEGMENT) // CHUNK
    stitching.heads = state.fresh
    state.fresh += state.num_streams
    heads = np.arange(stitching.heads, state.fresh)
    model.nodes["succ"][heads], model.nodes["pred"][heads] = heads, heads
    return GMLake(
        stitching=stitching,
        used=np.zeros(4096 + stitching.largest, np.int8),
        tensors=np.zeros(max(workload.num_tensors, 1), TENSOR),
        most=np.minimum(rounded * settings.reuse_limit, float(_MOST_SIZE)).astype(np.int64),
    )


def _detail(settings: GMLakeSettings, stitching: Any, out: Array, rounded: Array) -> Stitching:
    how, done = out[loop.OUT_HOW], out[0] == OK
    large = done & (rounded > SMALL_LIMIT)
    count = [int(np.count_nonzero(large & (how == which))) for which in range(loop.NOTHING)]
    stitched = (how == loop.STITCHED) | (how == loop.ADDED)
    return Stitching(
        frag_limit_bytes=settings.frag_limit_bytes,
        num_exact=count[loop.EXACT],
        num_split=count[loop.SPLIT],
        num_reused=count[loop.REUSED],
        num_stitched=count[loop.STITCHED] + count[loop.ADDED],
        stitched_bytes=int(rounded[done & stitched].sum()),
        num_new=count[loop.NEW] + count[loop.ADDED],
        max_blocks_per_tensor=int(out[loop.OUT_PRIMITIVES].max(initial=0)),
        num_maps=int(stitching.num_mapped),
        num_created=int(stitching.num_created),
        num_unmaps=int(stitching.num_unmapped),
        num_unstitched=int(stitching.num_unfused),
        peak_stitched_bytes=int(stitching.peak_stitched),
    )
