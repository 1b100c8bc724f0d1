"""The events of a device as a log: all of them, or those with the most bytes if a page cannot hold all."""

from __future__ import annotations

import numpy as np

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array
from memdiag.views.stacks import StackSymbols

MOST_EVENTS = 12_000


def event_log(device: DeviceTrace, rows: Array, symbols: StackSymbols) -> dict[str, Array]:
    """Returns the events of a log, ascending.

    Args:
        device: The device.
        rows: Rows of Tensors (ascending) in the page; other tensors are not referred to.
        symbols: Numbers the call stacks.

    Returns:
        Columns: event, action (index into ACTIONS), size (bytes, -1: none), tensor (index into ``rows``, or -1) and
        stack (of the call that caused the event).
    """
    events = device.events
    chosen = np.arange(device.num_events)
    if len(chosen) > MOST_EVENTS:
        weight = np.where(events.action == schema.OOM, np.iinfo(np.int64).max, events.size)
        chosen = np.sort(np.argsort(-weight, kind="stable")[:MOST_EVENTS])
    tensor = events.tensor[chosen]
    place = np.minimum(np.searchsorted(rows, tensor), max(len(rows) - 1, 0))
    known = (tensor >= 0) & (rows[place] == tensor) if len(rows) else np.zeros(len(chosen), bool)
    return {
        "event": chosen,
        "action": events.action[chosen].astype(np.int64),
        "size": events.size[chosen],
        "tensor": np.where(known, place, -1),
        "stack": symbols.stack(events.stack[chosen]),
    }
