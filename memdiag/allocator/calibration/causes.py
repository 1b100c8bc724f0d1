"""Explains the first difference between a replay and its recording by information that the recording lacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.calibration.comparing import ReplayComparison
from memdiag.allocator.result import Replay
from memdiag.allocator.workload import Workload
from memdiag.text import joined, phrase
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.units import format_bytes

_NEAR_START = 200  # events: unknown state from before the trace causes differences soon


@dataclass(frozen=True)
class Divergence:
    """The first difference.

    Attributes:
        event: Index of the event.
        what: "address", "segments" or "failure".
        expected, got: The recorded and the replayed value, in words.
        cause: The probable cause, in words.
        lacks_release: Whether the recording releases memory that the replay does not release.
    """

    event: int
    what: str
    expected: str
    got: str
    cause: str
    lacks_release: bool = False


def divergence(device: DeviceTrace, workload: Workload, replay: Replay, seen: ReplayComparison) -> Divergence:
    """Returns a description of the first difference in ``seen``."""
    assert seen.bad is not None  # noqa: S101 - callers pass comparisons with a difference only
    what, expected, got = _words(device, seen)
    lacks = any(action in (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP) for action, _, _ in seen.missing)
    return Divergence(seen.bad, what, expected, got, _cause(device, workload, replay, seen), lacks)


def _words(device: DeviceTrace, seen: ReplayComparison) -> tuple[str, str, str]:
    if seen.expected is not None and seen.expected != seen.got and (seen.expected < 0 or (seen.got or 0) < 0):
        served, failed = phrase("calibration.served"), phrase("calibration.failed")
        return "failure", failed if seen.expected < 0 else served, served if seen.expected < 0 else failed
    if seen.missing or seen.extra:
        return "segments", _listed(seen.missing), _listed(seen.extra)
    return "address", _place(device, seen.bad or 0, seen.expected or 0), _place(device, seen.bad or 0, seen.got or 0)


def _listed(events: tuple[tuple[int, int, int], ...]) -> str:
    if not events:
        return phrase("calibration.no-segments")
    shown = [
        phrase("calibration.segment", action=schema.ACTIONS[action], bytes=format_bytes(size))
        for action, _, size in events[:3]
    ]
    said = joined(shown, ", ")
    return phrase("calibration.more", events=said, count=len(events) - 3) if len(events) > 3 else said


def _place(device: DeviceTrace, event: int, address: int) -> str:
    """Returns an address as an offset from the beginning of its segment, in words."""
    segments = device.topology(event - 1).segments
    home = int(np.searchsorted(segments["start"], address, side="right")) - 1
    if home >= 0 and address < segments["start"][home] + segments["size"][home]:
        offset, size = address - int(segments["start"][home]), int(segments["size"][home])
        return phrase("calibration.place", offset=offset, bytes=format_bytes(size))
    return phrase("calibration.new", address=f"{address:#x}")


def _cause(device: DeviceTrace, workload: Workload, replay: Replay, seen: ReplayComparison) -> str:
    """Returns the first cause that applies, the most certain first."""
    event = seen.bad or 0
    events = device.events
    conditions = (
        (
            _is_outside(device, event),
            "outside",
        ),
        (_kinds_differ(device), "kinds"),
        (
            _in_private_pool(device, event),
            "private",
        ),
        (_vanished(device, event), "vanished"),
        (
            _has_new_segment_beside_room(replay, seen),
            "private-gone",
        ),
        (
            _is_elsewhere(device, seen),
            "addresses",
        ),
        (
            _collects(replay.conf, seen),
            "collects",
        ),
        (
            _is_tie(device, workload, seen),
            "tie",
        ),
        (
            _has_waiting(device, event),
            "streams",
        ),
        (
            device.num_uncertain_blocks > 0,
            "slack",
        ),
        (
            events.action[event] == schema.OOM or (bool(seen.missing) and not seen.extra and seen.expected is None),
            "released",
        ),
        (
            device.start["reserved"] > 0 and event < _NEAR_START,
            "middle",
        ),
    )
    key = next((key for applies, key in conditions if applies), "unknown")
    return phrase(f"calibration.cause.{key}")


def _is_outside(device: DeviceTrace, event: int) -> bool:
    tensor = int(device.events.tensor[event])
    return tensor >= 0 and int(device.tensors.group[tensor]) < 0


def _kinds_differ(device: DeviceTrace) -> bool:
    regions, groups = device.regions, device.groups
    if not len(regions):
        return False
    default = (groups.pool_major[regions.group] == 0) & (groups.pool_minor[regions.group] == 0)
    kinds = regions.expandable[default]
    return bool(len(kinds)) and bool(kinds.any()) and not bool(kinds.all())


def _in_private_pool(device: DeviceTrace, event: int) -> bool:
    group = int(device.events.group[event])
    return group >= 0 and bool(device.groups.pool_major[group] or device.groups.pool_minor[group])


def _has_new_segment_beside_room(replay: Replay, seen: ReplayComparison) -> bool:
    """Returns whether a segment was reserved despite enough free memory; before 2.13, its owner is unknown."""
    opens = [action in (schema.SEGMENT_ALLOC, schema.SEGMENT_MAP) for action, _, _ in seen.missing]
    version = tuple(int(part) for part in replay.torch_version.split(".")[:2] if part.isdigit())
    return bool(opens) and all(opens) and not seen.extra and version < (2, 13)


def _vanished(device: DeviceTrace, event: int) -> bool:
    if not {"overlap", "segment_gone_under_block", "alloc_on_live", "unmatched_free", "gap"} & device.anomalies.keys():
        return False
    return event >= 0


def _collects(conf: str, seen: ReplayComparison) -> bool:
    given_back = any(action == schema.SEGMENT_FREE for action, _, _ in (*seen.missing, *seen.extra))
    return given_back and "garbage_collection_threshold" in conf


def _is_elsewhere(device: DeviceTrace, seen: ReplayComparison) -> bool:
    """Returns whether pages were mapped at another place of an expandable segment from before the trace."""
    kinds = [[action for action, _, _ in events] for events in (seen.missing, seen.extra)]
    before = device.regions.expandable & (device.regions.opened_at < 0)
    return kinds[0] == kinds[1] and schema.SEGMENT_MAP in kinds[0] and bool(before.any())


def _is_tie(device: DeviceTrace, workload: Workload, seen: ReplayComparison) -> bool:
    """Returns whether the block used and the expected block have the same size."""
    if seen.expected is None or seen.got is None or min(seen.expected, seen.got) < 0 or seen.call < 0:
        return False
    if workload.op[seen.call] != w.ALLOC:
        return False
    blocks = device.topology((seen.bad or 0) - 1).blocks
    free = np.flatnonzero(blocks["tensor"] < 0)
    sizes = dict(zip(blocks["address"][free].tolist(), blocks["size"][free].tolist(), strict=True))
    return seen.expected in sizes and sizes.get(seen.got) == sizes[seen.expected]


def _has_waiting(device: DeviceTrace, event: int) -> bool:
    tensors = device.tensors
    waiting = (tensors.free_requested_at < event) & (tensors.free_completed_at > tensors.free_requested_at + 1)
    recent = tensors.free_completed_at >= event - _NEAR_START
    return bool((waiting & recent & (tensors.free_requested_at >= 0)).any())
