"""Memory of collectives: shards gathered into a list and then concatenated, and the buffers of buckets.

``all_gather(list, tensor)`` needs a tensor for each rank, and then the program or the library allocates another one
with the size of all of them together. In a trace, this is a burst of equal allocations, followed within their lifetime
by one with their total size, with ``all_gather`` on a stack. FSDP is excluded: its own gathers use a single tensor, and
copies out of that look similar.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {
    "MD121": "gathered shards are concatenated into a second copy",
}

FLOOR = 16 * MIB  # of one list
SHARE = 0.05  # fraction of allocated memory at the peak: a warning from here on
SOON = 8  # allocations after the burst within which the concatenated one must follow
SLACK = 512  # bytes of padding that each shard may have
NUM_PLACES = 3

_FLAT = ("into_tensor", "_all_gather_base", "foreach_all_gather", "all_gather_copy", "all_gather_object")


@dataclass(frozen=True)
class Gathers:
    """Lists that were concatenated, one entry each, in order of time.

    Attributes:
        first, count: Position of the list's first tensor in ``order``, and number of its tensors.
        joined: Position of the concatenated tensor.
        order: Rows of Tensors by allocation event.
    """

    first: Array
    count: Array
    joined: Array
    order: Array


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD121 of every device."""
    for view in context.views(trace):
        yield from _gathered(view)


def find_gathers(view: DeviceView) -> Gathers:
    """Returns every list of shards that was concatenated."""
    tensors = view.device.tensors
    order = np.flatnonzero(tensors.alloc_at >= 0)
    order = order[np.argsort(tensors.alloc_at[order], kind="stable")]
    size, stack = tensors.requested_bytes[order], tensors.stack[order]
    gathers = _gathering(view)
    names_it = (stack >= 0) & gathers[np.maximum(stack, 0)]
    none = np.empty(0, np.int64)
    if not names_it.any():
        return Gathers(none, none, none, order)
    edges = np.flatnonzero((np.diff(size) != 0) | (np.diff(stack) != 0)) + 1
    first = np.concatenate(([0], edges))
    count = np.diff(np.append(first, len(order)))
    named = np.concatenate(([0], np.cumsum(names_it)))
    near = named[np.minimum(first + count + SOON, len(order))] > named[first]
    candidates = np.flatnonzero((count >= 2) & (stack[first] >= 0) & (size[first] * count >= FLOOR) & near)
    found: list[tuple[int, int, int]] = []
    for start, number in zip(first[candidates].tolist(), count[candidates].tolist(), strict=True):
        end = start + number
        rows = order[start:end]
        until = int(tensors.free_requested_at[rows].min())
        for at in range(end, min(end + SOON, len(order))):
            if tensors.alloc_at[order[at]] >= until:
                break
            # The rank's own shard may be missing from the list: then the result has one more.
            is_sum = any(
                0 <= int(size[at]) - parts * int(size[start]) <= parts * SLACK for parts in (number, number + 1)
            )
            if is_sum and stack[at] != stack[start] and (names_it[start] or names_it[at]):
                found.append((start, number, at))
                break
    columns = np.array(found, np.int64).reshape(-1, 3)
    return Gathers(columns[:, 0], columns[:, 1], columns[:, 2], order)


def _gathering(view: DeviceView) -> Array:
    """Returns, per stack, whether it is in an all_gather, except one into a single tensor."""
    stacks = view.trace.stacks
    if not len(stacks):
        return np.zeros(1, bool)
    yes = stacks.with_frame(
        np.array(["all_gather" in frame.name and not _is_flat(frame) for frame in stacks.frames], bool)
    )
    return yes & ~stacks.with_frame(np.array([_is_flat(frame) for frame in stacks.frames], bool))


def _is_flat(frame: Frame) -> bool:
    return any(name in frame.name for name in _FLAT) or "/fsdp/" in frame.filename.replace("\\", "/")


def _gathered(view: DeviceView) -> Iterator[Finding]:
    """Yields MD121."""
    found, device = find_gathers(view), view.device
    if not len(found.first):
        return
    tensors = device.tensors
    held = np.array(
        [
            int(tensors.block_bytes[found.order[first : first + count]].sum())
            for first, count in zip(found.first, found.count, strict=True)
        ]
    )
    most = int(np.argmax(held))
    joined = found.order[found.joined]
    members = [found.order[first : first + count] for first, count in zip(found.first, found.count, strict=True)]
    live = np.intersect1d(np.concatenate(members), view.live)
    at_peak = int(tensors.block_bytes[live].sum())
    allocated = int(device.usage_at(view.at)["allocated"])
    shard = format_bytes(int(tensors.requested_bytes[members[most][0]]))
    is_highest = device.usage_at(view.at)["reserved"] == max(int(device.usage.reserved.max()), device.start["reserved"])
    yield Finding(
        "MD121",
        phrase("communication.title", count=int(found.count[most]), size=shard, bytes=format_bytes(int(held[most]))),
        "warning" if at_peak >= SHARE * allocated > 0 else "info",
        device.device,
        (
            Evidence(
                phrase("communication.list"),
                int(held[most]),
                "bytes",
                moment_name(device, int(tensors.alloc_at[joined[most]])),
            ),
            Evidence(phrase("communication.joined"), int(tensors.block_bytes[joined[most]]), "bytes"),
            Evidence(phrase("communication.lists"), len(held), "lists"),
            Evidence(phrase("communication.live"), at_peak, "bytes", moment_name(device, view.at)),
            *_places(view, tensors.stack[np.array([rows[0] for rows in members])], held),
        ),
        (
            Fix(
                phrase("communication.fix"),
                "code",
                "torch.distributed.all_gather_into_tensor(output, shard)",
                phrase("communication.fix.when"),
                phrase("communication.fix.caveat"),
            ),
        ),
        saving=Saving(0, at_peak, at_peak, "estimated") if at_peak and is_highest else None,
        weight_bytes=max(at_peak, int(held[most])),
    )


def _places(view: DeviceView, stacks: Array, held: Array) -> Iterator[Evidence]:
    """Yields the call sites of the largest lists."""
    largest: dict[str, int] = {}
    for stack, size in zip(stacks.tolist(), held.tolist(), strict=True):
        label = view.label(stack)
        largest[label] = max(largest.get(label, 0), size)
    for label in sorted(largest, key=lambda name: (-largest[name], name))[:NUM_PLACES]:
        yield Evidence(phrase("communication.site"), largest[label], "bytes", label)
