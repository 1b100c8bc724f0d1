"""Long-lived tensors of one kind in many blocks, where one buffer with views into it would need less memory.

Each such block is rounded up, and keeps its segment from being released. The saving of one buffer cannot be derived
from these bytes, so memdiag replays the trace (``merged``), and withdraws the finding if the replay saves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memdiag import vocabulary
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import lifetime_name, moment_name
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.sizes.cuda import SEGMENT_GRAIN, SMALL_LIMIT
from memdiag.text import joined, phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD122": "many long-lived tensors of one kind in separate blocks"}

MIN_TENSORS = 16
FLOOR = 32 * MIB  # of rounding and of free memory in their segments
SHARE = 0.01  # of reserved memory
NUM_GROUPS = 3

_LONG = [LIFETIMES.index(name) for name in ("persistent", "optimizer_state", "survives_step")]
_KNOWN = [CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state", "collective", "input")]


@dataclass(frozen=True)
class ScatteredGroup:
    """Tensors of one category, call site, pool and stream.

    Attributes:
        name: Call site and category, as evidence.
        rows: Rows of Tensors.
        rounding_bytes: Bytes by which their blocks exceed their requests.
        pinned_bytes: Free bytes in segments that contain no other live tensors.
        num_segments: Number of such segments.
    """

    name: str
    rows: Array
    rounding_bytes: int
    pinned_bytes: int
    num_segments: int

    @property
    def lost_bytes(self) -> int:
        """Bytes of rounding and of free memory that these tensors keep at the moment of the report."""
        return self.rounding_bytes + self.pinned_bytes


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields findings MD122 of every device; replays determine whether one buffer would save anything."""
    for view in context.views(trace):
        for group in find_groups(view):
            yield _finding(view, group)


def find_groups(view: DeviceView) -> list[ScatteredGroup]:
    """Returns the groups that lose most, at most ``NUM_GROUPS``."""
    device, tensors = view.device, view.device.tensors
    if not device.has_addresses or not device.num_events:
        return []
    live = device.live(view.at)
    asked = tensors.requested_bytes[live]
    odd = (asked <= SMALL_LIMIT) | (asked % SEGMENT_GRAIN != 0)
    made_here = (tensors.alloc_at[live] >= 0) & (tensors.stack[live] >= 0) & (tensors.group[live] >= 0)
    rows = live[odd & made_here & np.isin(tensors.lifetime[live], _LONG) & np.isin(tensors.category[live], _KNOWN)]
    least = max(FLOOR, int(SHARE * max(device.usage_at(view.at)["reserved"], 0)))
    if len(rows) < MIN_TENSORS:
        return []
    topology = device.topology(view.at)
    blocks, segments = topology.blocks, topology.segments
    used = np.bincount(
        blocks["segment"], weights=np.where(blocks["tensor"] >= 0, blocks["size"], 0), minlength=len(segments["start"])
    )
    segment_of = np.full(len(tensors), -1, np.int64)
    held = blocks["tensor"] >= 0
    segment_of[blocks["tensor"][held]] = blocks["segment"][held]
    rows = rows[segment_of[rows] >= 0]
    found = []
    for name, members in _by_kind(view, rows).items():
        if len(members) < MIN_TENSORS:
            continue
        size = tensors.block_bytes[members]
        own = np.bincount(segment_of[members], weights=size, minlength=len(used))
        alone = np.flatnonzero((own > 0) & (own >= used) & ~segments["expandable"])
        rounding = int((size - tensors.requested_bytes[members]).sum())
        group = ScatteredGroup(
            name, members, rounding, int(segments["size"][alone].sum() - own[alone].sum()), len(alone)
        )
        if group.lost_bytes >= least:
            found.append(group)
    return sorted(found, key=lambda group: (-group.lost_bytes, group.name))[:NUM_GROUPS]


def _by_kind(view: DeviceView, rows: Array) -> dict[str, Array]:
    """Returns the tensors of each category, place, pool and stream."""
    tensors, groups = view.device.tensors, view.device.groups
    of = tensors.group[rows]
    keys = np.stack(
        [
            tensors.category[rows],
            tensors.stack[rows],
            groups.pool_major[of],
            groups.pool_minor[of],
            groups.stream[of],
        ],
        axis=1,
    ).astype(np.int64)
    kinds, inverse = np.unique(keys, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    order = np.argsort(inverse, kind="stable")
    parts = np.split(rows[order], np.cumsum(np.bincount(inverse, minlength=len(kinds)))[:-1])
    found: dict[tuple[str, int, int, int], list[Array]] = {}
    for (category, stack, *where), members in zip(kinds.tolist(), parts, strict=True):
        name: str = phrase(
            "scattered.group", place=view.label(stack), category=vocabulary.name("category", CATEGORIES[category])
        )
        found.setdefault((name, *where), []).append(members)
    largest: dict[str, Array] = {}
    for (name, *_), arrays in found.items():  # of one call site in several pools or streams, the one with most of them
        together = np.sort(np.concatenate(arrays))
        if name not in largest or len(together) > len(largest[name]):
            largest[name] = together
    return largest


def _finding(view: DeviceView, group: ScatteredGroup) -> Finding:
    tensors = view.device.tensors
    asked = tensors.requested_bytes[group.rows]
    lifetimes = np.unique(tensors.lifetime[group.rows]).tolist()
    words = joined([lifetime_name(one) for one in lifetimes], phrase("scattered.or"))
    return Finding(
        "MD122",
        phrase("scattered.title", count=len(group.rows), bytes=format_bytes(group.lost_bytes)),
        "info",
        view.device.device,
        (
            Evidence(phrase("scattered.tensors", lifetimes=words), len(group.rows), "tensors", group.name),
            Evidence(phrase("scattered.requested"), int(asked.sum()), "bytes"),
            Evidence(phrase("scattered.median"), int(np.median(asked)), "bytes"),
            Evidence(phrase("scattered.rounding"), group.rounding_bytes, "bytes", moment_name(view.device, view.at)),
            Evidence(
                phrase("scattered.pinned"),
                group.pinned_bytes,
                "bytes",
                phrase("scattered.segments", count=group.num_segments),
            ),
        ),
        (
            Fix(
                phrase("scattered.fix"),
                "code",
                "",
                phrase("scattered.fix.when"),
                phrase("scattered.fix.caveat"),
            ),
        ),
        weight_bytes=group.lost_bytes,
    )
