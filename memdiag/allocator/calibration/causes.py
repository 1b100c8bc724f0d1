"""Why a replay may differ from its recording where it first does: what a recording leaves out, in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.allocator import workload as w
from memdiag.allocator.calibration.comparing import ReplayComparison
from memdiag.allocator.result import Replay
from memdiag.allocator.workload import Workload
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.units import format_bytes

_NEAR_START = 200  # events: what is unknown of the time before shows up soon


@dataclass(frozen=True)
class Divergence:
    """The first difference.

    Attributes:
        event: Index of the event.
        what: "address", "segments" or "failure".
        expected, got: In words.
        cause: Probable cause, in words.
        lacks_release: Memory was given back in the recording, and is not in the replay.
    """

    event: int
    what: str
    expected: str
    got: str
    cause: str
    lacks_release: bool = False


def divergence(device: DeviceTrace, workload: Workload, replay: Replay, seen: ReplayComparison) -> Divergence:
    """Describes the difference in ``seen``."""
    assert seen.bad is not None  # noqa: S101 - else there is nothing to describe
    what, expected, got = _words(device, seen)
    lacks = any(action in (schema.SEGMENT_FREE, schema.SEGMENT_UNMAP) for action, _, _ in seen.missing)
    return Divergence(seen.bad, what, expected, got, _cause(device, workload, replay, seen), lacks)


def _words(device: DeviceTrace, seen: ReplayComparison) -> tuple[str, str, str]:
    if seen.expected is not None and seen.expected != seen.got and (seen.expected < 0 or (seen.got or 0) < 0):
        served, failed = "it got a block", "out of memory"
        return "failure", failed if seen.expected < 0 else served, served if seen.expected < 0 else failed
    if seen.missing or seen.extra:
        return "segments", _listed(seen.missing) or "no segment event", _listed(seen.extra) or "no segment event"
    return "address", _place(device, seen.bad or 0, seen.expected or 0), _place(device, seen.bad or 0, seen.got or 0)


def _listed(events: tuple[tuple[int, int, int], ...]) -> str:
    shown = [f"{schema.ACTIONS[action]} of {format_bytes(size)}" for action, _, size in events[:3]]
    more = f" and {len(events) - 3:,} more" if len(events) > 3 else ""
    return ", ".join(shown) + more


def _place(device: DeviceTrace, event: int, address: int) -> str:
    """An address as a place: bytes from the beginning of its segment."""
    segments = device.topology(event - 1).segments
    home = int(np.searchsorted(segments["start"], address, side="right")) - 1
    if home >= 0 and address < segments["start"][home] + segments["size"][home]:
        return f"{address - int(segments['start'][home]):,} bytes into a segment of {format_bytes(int(segments['size'][home]))}"
    return f"{address:#x}, in a new segment"


def _cause(device: DeviceTrace, workload: Workload, replay: Replay, seen: ReplayComparison) -> str:
    """The first of these that applies, the surest first."""
    event = seen.bad or 0
    events = device.events
    conditions = (
        (
            _is_outside(device, event),
            "no segment of the file holds this block: trace and segments were not taken together",
        ),
        (_kinds_differ(device), "expandable segments were switched on or off at run time"),
        (
            _in_private_pool(device, event),
            "a private pool (CUDA graphs, MemPool): its checkpoints are restored without entries",
        ),
        (_vanished(device, event), "blocks before it were freed without an entry, or their entries are lost"),
        (
            _has_new_segment_beside_room(replay, seen),
            "a private pool that is gone at the end (CUDA graphs, MemPool): before torch 2.13 entries do not name their pool",
        ),
        (
            _is_elsewhere(device, seen),
            "which addresses an expandable segment had reserved before the trace is not recorded",
        ),
        (
            _collects(replay.conf, seen),
            "garbage_collection_threshold: how long blocks were idle, and the limit, are not recorded",
        ),
        (
            _is_tie(device, workload, seen),
            "two free blocks of one size: which of them is taken depends on their age, or on the version",
        ),
        (
            _has_waiting(device, event),
            "memory used by several streams: the events that the allocator waits for are not recorded",
        ),
        (
            device.num_uncertain_blocks > 0,
            "a block from before the trace may be larger than its request by up to 1 MiB (unknown slack)",
        ),
        (
            events.action[event] == schema.OOM or (bool(seen.missing) and not seen.extra and seen.expected is None),
            "cached memory was given back for a reason that is not recorded",
        ),
        (
            device.start["reserved"] > 0 and event < _NEAR_START,
            "the trace begins in the middle of a run (a full ring of entries)",
        ),
    )
    return next(
        (words for applies, words in conditions if applies),
        "settings changed at run time, or a rule of this version not known here",
    )


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
    """Whether a segment was obtained though free memory would have done, in a version that does not say whose it was."""
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
    """Whether pages were mapped at another place of an expandable segment that was there before the trace."""
    kinds = [[action for action, _, _ in events] for events in (seen.missing, seen.extra)]
    before = device.regions.expandable & (device.regions.opened_at < 0)
    return kinds[0] == kinds[1] and schema.SEGMENT_MAP in kinds[0] and bool(before.any())


def _is_tie(device: DeviceTrace, workload: Workload, seen: ReplayComparison) -> bool:
    """Whether the block that was taken and the one that should have been were of one size."""
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
