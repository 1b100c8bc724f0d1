"""Bytes lost inside blocks and behind them: rounding of requests, and what exact multiples of 2 MiB cost on an NPU.

A request is rounded up to 512 bytes; roundup_power2_divisions rounds further; a free block of which 1 MiB or less would remain is
handed out whole. torch_npu adds 32 bytes to every request first, so that 30 MiB opens a segment of 32 MiB of which a tail of
2 MiB - 512 is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memdiag.analyzers import remedies
from memdiag.analyzers.allocator_settings import AllocatorSettings
from memdiag.analyzers.context import DeviceView
from memdiag.analyzers.moments import OWN_SEGMENT, Look
from memdiag.analyzers.names import place_of
from memdiag.analyzers.places import moment_name
from memdiag.findings import Evidence, Finding, Fix, Saving
from memdiag.trace.layout import MIN_BLOCK
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes, plural

CODES: dict[str, str] = {
    "MD203": "blocks are much larger than what was asked for",
    "MD207": "tensors of exact multiples of 2 MiB cost a page more each (NPU)",
}

SHARE = 0.05  # of allocated memory
TAIL_SHARE = 0.02  # of reserved memory
FLOOR = 32 * MIB
PAGE = 2 * MIB
NUM_PLACES = 3


def findings(here: Look) -> Iterator[Finding]:
    """Yields findings MD203 and MD207 of one device at one moment."""
    yield from _rounding(here)
    if here.settings.backend == "npu" and here.device.has_addresses:
        yield from _tails(here)


def _rounding(here: Look) -> Iterator[Finding]:
    """MD203."""
    usage = here.device.usage_at(here.after)
    allocated, requested = usage["allocated"], usage["requested"]
    if requested < 0 or allocated - requested < max(SHARE * allocated, FLOOR):
        return
    tensors = here.device.tensors
    live = here.device.live(here.after)
    asked, block = tensors.requested_bytes[live], tensors.block_bytes[live]
    least = np.maximum(-(-asked // MIN_BLOCK) * MIN_BLOCK, MIN_BLOCK)
    beyond = np.maximum(block - least, 0)
    divided = any(number > 1 for number in here.settings.layout.divisions)
    cause = "rounding to powers of two (roundup_power2_divisions)" if divided else "blocks not cut for a rest of 1 MiB or less"
    yield Finding(
        "MD203",
        f"Blocks are {format_bytes(allocated - requested)} larger than what was asked for",
        "warning",
        here.device.device,
        (
            Evidence("allocated - requested", allocated - requested, "bytes", moment_name(here.device, here.after)),
            Evidence("of it rounding to 512 bytes", int((least - asked).sum()), "bytes"),
            Evidence(f"of it {cause}", int(beyond.sum()), "bytes"),
            *_largest_places(here.view, live, beyond if beyond.any() else block - asked),
        ),
        remedies.present(_no_divisions(here.settings) if divided else remedies.expandable_segments(here.settings), _flat_buffer()),
        weight_bytes=allocated - requested,
    )


def _largest_places(view: DeviceView, rows: Array, lost: Array) -> Iterator[Evidence]:
    stacks, inverse = np.unique(view.device.tensors.stack[rows], return_inverse=True)
    sums = np.zeros(len(stacks), np.int64)
    np.add.at(sums, inverse, lost)
    counts = np.bincount(inverse, minlength=len(stacks))
    for i in np.argsort(-sums, kind="stable")[:NUM_PLACES]:
        place = place_of(view, rows[inverse == i], view.label(int(stacks[i])))
        if sums[i] > 0 and (stacks[i] >= 0 or place):
            yield Evidence(f"lost by {plural(int(counts[i]), 'tensor')}", int(sums[i]), "bytes", place)


def _no_divisions(settings: AllocatorSettings) -> Fix:
    return Fix(
        "Leave out roundup_power2_divisions, or use more divisions",
        "env",
        settings.line({"roundup_power2_divisions": None}),
        "CUDA, and torch_npu >= 7.3.0",
        "sizes that vary will fit less often into blocks that others left; compare the reserved peaks",
    )


def _flat_buffer() -> Fix:
    title = "Put many small tensors of one kind into one buffer, as views"
    return Fix(title, "code", "", "every backend", "views keep the whole buffer alive")


def _tails(here: Look) -> Iterator[Finding]:
    """MD207: free tails behind tensors of exact multiples of 2 MiB, in segments that were opened for them."""
    topology, tensors = here.device.topology(here.after), here.device.tensors
    blocks, segments, reserved = topology.blocks, topology.segments, here.device.usage_at(here.after)["reserved"]
    if len(blocks["segment"]) < 2:
        return
    first, then = slice(None, -1), slice(1, None)
    segment, row = blocks["segment"][first], blocks["tensor"][first]
    tail_end = blocks["address"][then] + blocks["size"][then]
    alone = (
        (blocks["segment"][then] == segment)
        & (row >= 0)
        & (blocks["tensor"][then] < 0)
        & ~segments["expandable"][segment]
        & (blocks["address"][first] == segments["start"][segment])
        & (tail_end == segments["start"][segment] + segments["size"][segment])
        & (blocks["size"][then] == PAGE - MIN_BLOCK)
    )
    at = np.flatnonzero(alone)
    asked = tensors.requested_bytes[row[at]]
    at = at[(asked % PAGE == 0) & (asked >= OWN_SEGMENT)]
    lost = len(at) * (PAGE - MIN_BLOCK)
    if lost < max(TAIL_SHARE * reserved, FLOOR):
        return
    at_peak = reserved == max(int(here.device.usage.reserved.max(initial=0)), here.device.start["reserved"])
    tails = np.full(len(at), PAGE - MIN_BLOCK)
    yield Finding(
        "MD207",
        f"{plural(len(at), 'tensor')} of exact multiples of 2 MiB cost a page more each, {format_bytes(lost)} in all",
        "warning",
        here.device.device,
        (
            Evidence("free behind tensors that fill their segment but for 2 MiB", lost, "bytes", moment_name(here.device, here.after)),
            *_largest_places(here.view, row[at], tails),
        ),
        remedies.present(
            remedies.expandable_segments(here.settings),
            Fix(
                "Make such tensors at least 32 bytes smaller than the multiple, or put several into one buffer",
                "code",
                "",
                "torch_npu; not on Ascend 950 with CANN >= 9.1, which adds nothing",
                "helps only where the rest is not used for smaller tensors meanwhile",
            ),
        ),
        # without its tail each of these segments is one page shorter; more cannot be saved, and another tensor may use the tail
        saving=Saving(0, len(at) * PAGE, len(at) * PAGE, "estimated") if at_peak else None,
        weight_bytes=lost,
    )
