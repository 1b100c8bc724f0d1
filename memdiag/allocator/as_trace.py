"""Converts a replay to a trace, so that every analyzer of recordings also works on predictions.

Entries are in the order of the simulated allocator. Stacks, times, phases, names and categories are copied from the
recording, because the program does the same in both. Ranges that the recording did not have get invented addresses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from memdiag.allocator.final_state import final_state
from memdiag.allocator.policies import POLICIES
from memdiag.allocator.policies.parameters import parameters
from memdiag.allocator.result import Replay
from memdiag.allocator.workload import Start, Workload
from memdiag.results.finding import Note
from memdiag.settings.tables import VARIABLE
from memdiag.text import phrase
from memdiag.trace import schema
from memdiag.trace.annotate import BASES
from memdiag.trace.build import RawTrace, build_trace
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.raw import RawDevice
from memdiag.trace.snapshot_fields import MORE_COLUMNS
from memdiag.trace.table import Array

FORMAT = "simulated"
_CARRIED = (
    "category",
    "lifetime",
    "lifetime_inferred",
    "phase_alloc",
    "phase_free",
    "step_alloc",
    "step_free",
    "name",
    "label",
)
_FREES = (schema.FREE_REQUESTED, schema.FREE_COMPLETED)


@dataclass(frozen=True)
class Simulated:
    """A replay as a trace of one device.

    Attributes:
        trace: The trace.
        row: Per entry, the event of the recording that it belongs to (-1: before the first event).
    """

    trace: Trace
    row: Array

    @property
    def device(self) -> DeviceTrace:
        """The only device of the trace."""
        return self.trace.devices[0]


def as_trace(
    replay: Replay, workload: Workload, trace: Trace, device: DeviceTrace, *, kept_start: bool = True
) -> Simulated:
    """Returns ``replay`` (with its log) as a trace.

    Args:
        replay: The replay of ``workload``.
        workload: The requests on ``device`` of ``trace``.
        trace, device: The recording.
        kept_start: Whether the replay began with the memory from before the recording, not with an empty allocator.
    """
    log = replay.log
    if log is None:
        raise ValueError("a replay without its log has no entries")
    policy = POLICIES[replay.policy]
    layout = policy.layout(*parameters(policy, replay.conf, replay.torch_version))
    call = log["call"].astype(np.int64)
    row = np.where(call >= 0, workload.row[np.maximum(call, 0)], -1) if len(workload.row) else np.full(len(call), -1)
    addr = _addresses(replay, log)
    start = workload.start if kept_start else Start()
    segments, blocks = final_state(replay, workload, start, addr) if len(start.base) else (None, None)
    handles = workload.streams.view(np.int64)
    pools = np.array(workload.pools if replay.pools is None else replay.pools, np.int64)
    raw = RawDevice(
        device=device.device,
        action=log["action"].astype(np.int8),
        addr=addr,
        size=log["size"].astype(np.int64),
        stream=handles[np.clip(log["stream"], 0, max(len(handles) - 1, 0))] if len(handles) else None,
        time_us=_at(device.events.time_us, row, -1),
        stack=_stacks(device, log, row),
        pool=pools[np.clip(log["pool"], 0, len(pools) - 1)],
        segments=segments,
        blocks=blocks,
        capacity_bytes=replay.capacity_bytes,
        more={name: _at(device.events[name], row, -1) for name in MORE_COLUMNS},
    )
    built = build_trace(
        RawTrace(
            path=trace.path,
            format=FORMAT,
            backend=policy.backend,
            raws=[raw],
            layout=layout,
            stacks=trace.stacks,
            torch_version=replay.torch_version,
            phantom=trace.phantom,
            settings={VARIABLE[policy.backend]: policy.effective_conf(replay.conf)},
            strings=trace.strings,
            annotations=trace.annotations,
            notes=[Note("MD924", phrase("notes.simulated"))],
            bases={name: trace.bases.get(name, "none") for name in BASES},
        )
    )
    found = replace(built, devices=(_carry(built.devices[0], device, log, row, start),))
    return Simulated(found, row)


def _addresses(replay: Replay, log: dict[str, Array]) -> Array:
    """Returns the address of each entry; for a failed request, the free bytes of the device, as in a snapshot."""
    seg, off = log["seg"], log["off"].astype(np.int64)
    if not len(replay.bases):
        return off
    found: Array = np.where(seg >= 0, replay.bases[np.maximum(seg, 0)] + off, off)
    return found


def _at(column: Array, row: Array, otherwise: int) -> Array:
    """Returns the values of the recording at the events that entries belong to."""
    if not len(column):
        return np.full(len(row), otherwise, column.dtype)
    value: Array = np.where(row >= 0, column[np.maximum(row, 0)], column[0])
    return value


def _stacks(device: DeviceTrace, log: dict[str, Array], row: Array) -> Array:
    """Returns the stack of each entry: a tensor's allocation or free, otherwise the program's stack at that time."""
    tensors, tensor = device.tensors, log["tensor"]
    own = (tensor >= 0) & (tensor < len(tensors))
    at = np.where(own, tensor, 0)
    stack = np.where(row >= 0, _at(device.events.stack, row, -1), -1)
    if len(tensors):
        stack = np.where(own & (log["action"] == schema.ALLOC), tensors.stack[at], stack)
        stack = np.where(own & np.isin(log["action"], _FREES), tensors.free_stack[at], stack)
    return stack.astype(np.int32)


def _carry(new: DeviceTrace, old: DeviceTrace, log: dict[str, Array], row: Array, start: Start) -> DeviceTrace:
    """Returns ``new`` with the recorded details of its events and tensors."""
    number = np.full(len(new.tensors), -1, np.int64)
    made = np.flatnonzero((log["action"] == schema.ALLOC) & (new.events.tensor >= 0))
    number[new.events.tensor[made]] = log["tensor"][made]
    before = np.flatnonzero(new.tensors.alloc_at < 0)
    if len(before) and len(start.base):
        place = start.base[start.block_range] + start.block_off
        order = np.argsort(place, kind="stable")
        at = order[np.minimum(np.searchsorted(place[order], new.tensors.addr[before]), len(order) - 1)]
        number[before] = np.where(place[at] == new.tensors.addr[before], start.block_tensor[at], -1)
    known = (number >= 0) & (number < len(old.tensors))
    of = np.where(known, number, 0)
    tensors = new.tensors
    if len(old.tensors):
        tensors = tensors.replace(**{name: np.where(known, old.tensors[name][of], tensors[name]) for name in _CARRIED})
    phase = np.where(row >= 0, _at(old.events.phase, row, 0), 0)
    step = np.where(row >= 0, _at(old.events.step, row, -1), -1)
    return replace(new, tensors=tensors, events=new.events.replace(phase=phase, step=step))
