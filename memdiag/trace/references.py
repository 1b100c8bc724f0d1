"""Reference requests: those for which the allocator had to reserve a segment, release its cache, or fail.

Free bytes are useful or useless only *to a specific request*. Each event uses the next such request; events after the
last one use the last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.trace import schema
from memdiag.trace.layout import Layout
from memdiag.trace.raw import RawDevice
from memdiag.trace.regions import Groups, RegionPlan
from memdiag.trace.table import Array, Table


class ReferenceRequests(NamedTuple):
    """The reference requests of a device.

    Attributes:
        table: ``schema.REFERENCES``.
        of_event: Row of the reference of each event (int32); -1: there is no request.
    """

    table: Table
    of_event: Array


def find_references(raw: RawDevice, layout: Layout, plan: RegionPlan, groups: Groups) -> ReferenceRequests:
    """Returns the reference requests."""
    action = raw.action
    n = len(action)
    is_request = (action == schema.ALLOC) | (action == schema.OOM)
    requests = np.flatnonzero(is_request)
    opens = plan.event[plan.opens]
    answered = np.searchsorted(requests, opens)
    openers = requests[answered[answered < len(requests)]]
    ooms = np.flatnonzero(action == schema.OOM)
    at = np.unique(np.concatenate((openers, ooms)))
    if not len(at):
        if not len(requests):
            return no_references(n)
        at = requests[[int(np.argmax(raw.size[requests]))]]
    failed = action[at] == schema.OOM
    size = np.where(failed, raw.size[at], layout.round_size(raw.size[at]))

    # The entries of a malloc directly precede its request: releases, then the new segment.
    other = np.flatnonzero(~np.isin(action, schema.SEGMENT_ACTIONS))
    previous = np.searchsorted(other, at) - 1
    opened_at = np.where(previous >= 0, other[np.maximum(previous, 0)], -1) + 1
    frees = np.concatenate(([0], np.cumsum(np.isin(action, (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP)))))
    retried = frees[at] > frees[opened_at]

    stream = raw.stream[at] if raw.stream is not None else np.zeros(len(at), np.int64)
    pool = np.maximum(raw.pool[at], 0) if raw.pool is not None else np.zeros((len(at), 2), np.int64)
    group = groups.rows(pool[:, 0], pool[:, 1], size <= SMALL_LIMIT, stream)
    # The segment that was reserved for it identifies the pool more reliably than the entry, which seldom names one.
    mine = np.searchsorted(opens, at) - 1
    has = (mine >= 0) & (opens[np.maximum(mine, 0)] >= opened_at) if len(opens) else np.zeros(len(at), bool)
    group = np.where(has, plan.group[plan.opens][np.maximum(mine, 0)] if len(opens) else -1, group)
    table = Table(
        schema.REFERENCES,
        {
            "at_event": at,
            "opened_at": opened_at,
            "size": size,
            "group": group,
            "largest_free": np.full(len(at), -1),
            "failed": failed,
            "retried": retried,
        },
    )
    of = np.minimum(np.searchsorted(at, np.arange(n)), len(at) - 1).astype(np.int32)
    return ReferenceRequests(table, of)


def no_references(num_events: int) -> ReferenceRequests:
    """Returns the empty result for a trace without reference requests."""
    return ReferenceRequests(Table.empty(schema.REFERENCES), np.full(num_events, -1, np.int32))


def reference_sizes(references: Table, num_groups: int) -> tuple[Array, Array, Array]:
    """Returns the distinct sizes sorted within each group.

    Also returns the start of each group, and each reference's index in its group.
    """
    group, size = references.group.astype(np.int64), references.size
    order = np.lexsort((size, group))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(size[order]) != 0) | (np.diff(group[order]) != 0)
    xs = size[order][new]
    x_start = np.searchsorted(group[order][new], np.arange(num_groups + 1))
    position = np.empty(len(order), np.int64)
    position[order] = np.cumsum(new) - 1
    return xs, x_start, position - x_start[group] if len(group) else position
