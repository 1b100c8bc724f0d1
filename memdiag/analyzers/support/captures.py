"""Memory that private pools reserved for each batch size of which an inference engine captured CUDA graphs.

The recorder marks each capture with its size (``memdiag.recorder.captures``). Traces of other recorders do not contain
the sizes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.context import DeviceView
from memdiag.trace.recorded import MARK, place

_PREFIX = "graph capture: "
_NAME = re.compile(r"(\d{1,9}) (tokens|requests)(?:, (\w{1,40}))?")


@dataclass(frozen=True, slots=True)
class Capture:
    """The capture of all graphs of one batch size.

    Attributes:
        at: The first event of the capture.
        size: The batch size.
        unit: "tokens" or "requests".
        mode: How the engine captures, such as "FULL"; "" if it has only one way.
        reserved_bytes: Memory that private pools reserved meanwhile, and still held after the last capture.
        live_bytes: Memory of tensors allocated in private pools meanwhile, and still live after the last capture.
    """

    at: int
    size: int
    unit: str
    mode: str
    reserved_bytes: int
    live_bytes: int


def captures(view: DeviceView) -> list[Capture]:
    """Returns the captures that a trace names, in their order: of each size and mode the last one."""
    device, recorded = view.device, view.trace.recorded
    if recorded is None:
        return []
    marks = recorded.marks
    rows = np.flatnonzero((marks["kind"] == MARK) & (marks["value"] >= 0) & (marks["value"] < len(recorded.names)))
    where = place(recorded, device, marks)[rows]
    found = [
        (int(at), _NAME.fullmatch(name.removeprefix(_PREFIX)))
        for at, value in zip(where.tolist(), marks["value"][rows].tolist(), strict=True)
        if at >= 0 and (name := recorded.names[value]).startswith(_PREFIX)
    ]
    if not found:
        return []
    groups, regions, tensors = device.groups, device.regions, device.tensors
    is_private = np.append((groups.pool_major != 0) | (groups.pool_minor != 0), False)
    after = found[-1][0]
    held = is_private[regions.group] & (regions.closed_at > after)
    live = is_private[tensors.group] & (tensors.free_requested_at > after)
    ends = [*(at for at, _ in found[1:]), device.num_events]
    result: dict[tuple[str, ...], Capture] = {}
    for (begin, match), end in zip(found, ends, strict=True):
        if match is None:  # a capture of unknown size
            continue
        key = match.groups("")
        reserved = regions.size[held & (regions.opened_at >= begin) & (regions.opened_at < end)]
        alive = tensors.block_bytes[live & (tensors.alloc_at >= begin) & (tensors.alloc_at < end)]
        result.pop(key, None)  # the engine captures some sizes before, to measure their memory
        result[key] = Capture(begin, int(key[0]), key[1], key[2], int(reserved.sum()), int(alive.sum()))
    return list(result.values())
