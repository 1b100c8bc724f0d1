"""Pinned host memory in a snapshot: ``host_segments`` and ``host_traces``, which torch 2.14 added.

The host allocator rounds requests up to powers of two and never splits a block, so every segment is one block. It logs
the rounded size as the requested one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memdiag.trace import schema
from memdiag.trace.raw import RawDevice
from memdiag.trace.snapshot_fields import MORE_COLUMNS
from memdiag.trace.table import Array, Table

HOST = -1  # device of host segments in a snapshot


def host_device(entries: Mapping[str, Array], segments: Table, blocks: Table) -> RawDevice | None:
    """Returns pinned host memory in the form of a device, or None if the file has none.

    Args:
        entries: Columns of the entries; empty if there is no history.
        segments, blocks: The final state, with stacks.
    """
    none = np.empty(0, np.int64)
    action = entries.get("action", np.empty(0, np.int8))
    size = entries.get("size", none)
    if not len(action) and not len(segments):
        return None
    change = np.where(action == schema.SEGMENT_ALLOC, size, np.where(action == schema.SEGMENT_FREE, -size, 0))
    held = int(segments.total_size.sum()) - int(change.sum()) + np.cumsum(change)
    return RawDevice(
        device=HOST,
        action=action,
        addr=entries.get("addr", none),
        size=size,
        stream=entries.get("stream"),
        time_us=entries.get("time_us"),
        stack=entries.get("stack"),
        segments=segments,
        blocks=blocks,
        has_addresses=False,
        curves={"reserved": held} if len(action) else {},
        more={name: entries[name] for name in MORE_COLUMNS if name in entries},
    )
