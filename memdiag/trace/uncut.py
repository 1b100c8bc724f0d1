"""Detects private pools whose segments are never split (``MemPool(no_split=True)``).

A block in such a pool takes the whole free range around it. No file records this. There are two signs: a block whose
recorded size is larger than any split would have left it, and a new segment for a request that the remainder of another
segment would have served.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memdiag.trace.layout import Layout, are_split
from memdiag.trace.table import Array

_MOST_TENSORS = 20_000  # most segments that are examined individually


def uncut_groups(
    groups: Mapping[str, Array],
    layout: Layout,
    tensors: Mapping[str, Array],
    known: Array,
    group_of: Array,
    regions: Mapping[str, Array],
) -> Array:
    """Returns, per group, whether it belongs to a pool whose segments are not split.

    Args:
        groups: Columns of ``schema.GROUPS``.
        layout: The settings in effect.
        tensors: Columns addr, requested_bytes, alloc_at, free_completed_at.
        known: Bytes of each tensor's block if the file records them, else -1.
        group_of: Group of each tensor, or -1.
        regions: Columns start, size, opened_at, closed_at, group, expandable.
    """
    pool = _numbered(groups["pool_major"], groups["pool_minor"])
    found = np.zeros(len(pool), bool)
    if not (pool > 0).any():
        return found
    private = np.flatnonzero((group_of >= 0) & (pool[group_of] > 0))
    rounded = layout.round_size(tensors["requested_bytes"][private])
    group, size, fine = group_of[private], known[private], groups["small"].astype(bool) | layout.expandable
    has_size = size > 0
    proofs = pool[group[has_size & _has_rest(size - rounded, rounded, fine[group], layout)]]
    places = _regions_of(tensors["addr"][private], tensors["alloc_at"][private], regions)
    fills = (regions["expandable"][places] > 0) | (regions["size"][places] == size)
    cut = set(pool[group[has_size & (places >= 0) & ~fills]].tolist())
    uncut = set(proofs.tolist()) - cut
    if len(private) <= _MOST_TENSORS:
        for index in set(pool[group].tolist()) - cut - uncut:
            mine = pool[group] == index
            if (places[mine] >= 0).all() and (regions["start"][places[mine]] == tensors["addr"][private][mine]).all():
                rows = private[mine]
                times = tensors["alloc_at"][rows], tensors["free_completed_at"][rows]
                if _is_spared(places[mine], *times, rounded[mine], fine[group[mine]], regions, layout):
                    uncut.add(index)
    found[:] = np.isin(pool, list(uncut))
    return found


def _numbered(major: Array, minor: Array) -> Array:
    """Returns the pool of each group as one number, 0 for the default pool."""
    ids = np.stack((major, minor), axis=1).astype(np.int64)
    _, number = np.unique(ids, axis=0, return_inverse=True)
    found: Array = np.where((major == 0) & (minor == 0), 0, number.reshape(-1) + 1)
    return found


def _has_rest(rest: Array, rounded: Array, fine: Array, layout: Layout) -> Array:
    """Returns whether the remainder of a block beyond ``rounded`` would have been split off."""
    return are_split(rest, rounded, fine, layout.max_split or np.iinfo(np.int64).max)


def _regions_of(addr: Array, alloc_at: Array, regions: Mapping[str, Array]) -> Array:
    """Returns the region (row) that contains each tensor, or -1."""
    order = np.lexsort((regions["opened_at"], regions["start"]))
    starts = regions["start"][order]
    found = np.full(len(addr), -1)
    for k, (place, born) in enumerate(zip(addr.tolist(), alloc_at.tolist(), strict=True)):
        at = int(np.searchsorted(starts, place, side="right")) - 1
        while at >= 0:
            row = order[at]
            if (
                place < starts[at] + regions["size"][row]
                and regions["opened_at"][row] <= born < regions["closed_at"][row]
            ):
                found[k] = row
                break
            at -= 1
            if at < 0 or starts[at] + regions["size"][order[at]] <= place:
                break
    return found


def _is_spared(
    places: Array, born: Array, gone: Array, rounded: Array, fine: Array, regions: Mapping[str, Array], layout: Layout
) -> bool:
    """Returns whether a segment was reserved for one of these tensors although another had enough free memory."""
    rest = regions["size"][places] - rounded
    has_rest = _has_rest(rest, rounded, fine, layout) & (regions["expandable"][places] == 0)
    group = regions["group"][places]
    for k in np.argsort(born, kind="stable").tolist():
        opened = int(regions["opened_at"][places[k]])
        if opened < 0 or (born[(places == places[k]) & (born > opened)] < born[k]).any():
            continue  # not the tensor for which it was reserved
        beside = has_rest & (group == group[k]) & (born < opened) & (gone > opened) & (rest >= rounded[k])
        if beside.any():
            return True
    return False
