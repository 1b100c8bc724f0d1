"""Names for moments, pools and tensors, as findings print them."""

from __future__ import annotations

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.schema import LIFETIMES, PHASES
from memdiag.units import format_count, plural


def moment_name(device: DeviceTrace, at: int) -> str:
    """Returns ``event 1,204 (step 3, backward)``; ``before the trace`` for -1."""
    if at < 0:
        return "before the trace" if device.num_events else "the snapshot"
    details = []
    if device.events.step[at] >= 0:
        details.append(f"step {device.events.step[at]}")
    if device.events.phase[at] > 0:
        details.append(PHASES[device.events.phase[at]])
    return f"event {format_count(at)}" + (f" ({', '.join(details)})" if details else "")


def group_name(device: DeviceTrace, group: int) -> str:
    """Returns ``default pool, large blocks, stream 0`` for a row of Groups."""
    if group < 0:
        return "unknown pool"
    row = {name: device.groups[name][group] for name in schema.GROUPS}
    private = bool(row["pool_major"] or row["pool_minor"])
    pool = f"private pool ({row['pool_major']}, {row['pool_minor']})" if private else "default pool"
    stream = "default stream" if row["stream"] == 0 else f"stream {row['stream']:#x}"
    return f"{pool}, {'small' if row['small'] else 'large'} blocks, {stream}"


def lifetime_name(lifetime: int) -> str:
    """Returns ``surviving to the next step`` and the like; "" where unknown."""
    names = {
        "survives_step": "surviving to the next step",
        "forward_to_backward": "forward to backward",
        "within_step": "within a step",
        "within_phase": "within a phase",
    }
    name = LIFETIMES[lifetime]
    return "" if name == "unknown" else names.get(name, name.replace("_", " "))


def age(device: DeviceTrace, alloc_at: int, at: int) -> str:
    """Returns how long a tensor born at ``alloc_at`` has lived at ``at``: ``for 12,034 events (3 steps)``; "" without a trace."""
    if at < 0:
        return ""
    if alloc_at < 0:
        return "since before the trace"
    events = plural(at - alloc_at, "event")
    then, now = int(device.events.step[alloc_at]), int(device.events.step[at])
    if then < 0 or now <= then:
        return f"for {events}"
    return f"for {events} ({plural(now - then, 'step')})"
