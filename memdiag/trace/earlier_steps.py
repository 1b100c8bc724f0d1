"""Lifetimes of tensors that are still live when a trace ends, inferred from the same call site in completed steps.

A trace that ends in a failure does not record when the program would have freed the tensors of its last step. Training
steps repeat, so tensors of the same call site in completed steps give the answer. Only tensors that lived at least as
long as the open tensor so far have a vote, because a shorter-lived one is no evidence for a tensor that has outlived
it.
"""

from __future__ import annotations

import numpy as np

from memdiag.trace import schema
from memdiag.trace.lifetimes import Lives
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array

# Share of the earlier tensors that must agree. With fewer, the lifetime stays unknown.
MAJORITY = 0.9

_UNKNOWN = schema.LIFETIMES.index("unknown")
_NUM_LIFETIMES = len(schema.LIFETIMES)


def like_earlier_steps(device: DeviceTrace, lives: Lives, lifetime: Array, is_silent: Array) -> Array:
    """Infers the unknown lifetimes of tensors of the last step that are live at the end of the trace.

    Earlier tensors of the same stack, phase and requested size vote; else those of the same power of two; else those of
    any size, since inputs of another length change every size. If no stack names a call site, only the same size
    counts: backward without Python frames allocates gradients and scratch memory of all sizes.

    Args:
        device: The device.
        lives: Birth and death of its tensors.
        lifetime: int8: index into LIFETIMES, 0 where unknown.
        is_silent: bool: the tensor has no stack, or its stack names no user code.

    Returns:
        The lifetimes (int8), including the inferred ones.
    """
    is_open = (
        (lifetime == _UNKNOWN)
        & lives.kept
        & ~lives.before
        & (lives.step_alloc >= 0)
        & (lives.step_alloc == lives.last_step)
    )
    open_rows = np.flatnonzero(is_open)
    if not len(open_rows):
        return lifetime
    is_completed = (
        (lifetime != _UNKNOWN) & ~lives.before & (lives.step_alloc >= 0) & (lives.step_alloc < lives.last_step)
    )
    earlier = np.flatnonzero(is_completed)
    result = lifetime.copy()
    size = device.tensors.requested_bytes
    power_of_two = np.frexp(size.astype(np.float64))[1].astype(np.int64)
    for kind in (size, power_of_two, np.zeros_like(size)):
        key = site_key(device.tensors.stack, lives.phase_alloc, kind)
        unheard = _vote(result, key, open_rows, earlier, lives.num_allocs)
        open_rows = unheard[~is_silent[unheard]]
        if not len(open_rows):
            break
    return result


def site_key(stack: Array, phase: Array, size: Array) -> Array:
    """Returns one int64 per tensor, equal for tensors of the same stack, phase and size."""
    key: Array = stack.astype(np.int64) << 40 ^ size ^ phase.astype(np.int64) << 36
    return key


def _vote(lifetime: Array, key: Array, open_rows: Array, earlier: Array, num_allocs: Array) -> Array:
    """Sets the lifetime of each open row to the majority of earlier rows with its key; returns the rows without any.

    Args:
        lifetime: Changed in place.
        key: One int64 per tensor.
        open_rows: Rows to infer.
        earlier: Rows that vote.
        num_allocs: How many allocations each tensor has outlived.
    """
    keys = np.unique(key[open_rows])
    place = np.minimum(np.searchsorted(keys, key[earlier]), len(keys) - 1)
    is_wanted = keys[place] == key[earlier]
    earlier, place = earlier[is_wanted], place[is_wanted]
    # Rows of one key are adjacent, sorted by lifetime: those at least as old as an open tensor are the end of its
    # range.
    span = int(num_allocs.max(initial=0)) + 1
    rank = place * span + num_allocs[earlier]
    order = np.argsort(rank, kind="stable")
    rank = rank[order]
    votes = np.zeros((len(order) + 1, _NUM_LIFETIMES), np.int32)
    votes[np.arange(1, len(votes)), lifetime[earlier[order]]] = 1
    np.cumsum(votes, axis=0, out=votes)
    mine = np.searchsorted(keys, key[open_rows])
    last = np.searchsorted(rank, (mine + 1) * span)
    counted = votes[last] - votes[np.searchsorted(rank, mine * span + num_allocs[open_rows])]
    total = counted.sum(axis=1)
    is_clear = (total > 0) & (counted.max(axis=1) >= MAJORITY * total)
    lifetime[open_rows[is_clear]] = counted[is_clear].argmax(axis=1)
    heard = last > np.searchsorted(rank, mine * span)
    unheard: Array = open_rows[~heard]
    return unheard
