"""Bytes lost inside and after blocks: rounding of requests, and the cost of exact multiples of 2 MiB on an NPU.

A request is rounded up to 512 bytes, and further by roundup_power2_divisions. A free block with a remainder of at most
1 MiB is allocated whole. torch_npu adds 32 bytes to every request first, so 30 MiB reserve a segment of 32 MiB, with a
tail of 2 MiB - 512.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memdiag.analyzers.support.context import DeviceView
from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.analyzers.support.names import place_of
from memdiag.analyzers.support.places import moment_name
from memdiag.diagnosis.remedies import present
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.sizes.cuda import MIN_BLOCK, OWN_SEGMENT
from memdiag.text import phrase
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {
    "MD203": "blocks larger than the requests they serve",
    "MD207": "requests of multiples of 2 MiB waste 2 MiB (NPU)",
}

SHARE = 0.05  # of allocated memory
TAIL_SHARE = 0.02  # of reserved memory
FLOOR = 32 * MIB
PAGE = 2 * MIB
NUM_PLACES = 3


def findings(here: DeviceMoment) -> Iterator[Finding]:
    """Yields findings MD203 and MD207 of one device at one moment."""
    yield from _rounding(here)
    if here.settings.backend == "npu" and here.device.has_addresses:
        yield from _tails(here)


def _rounding(here: DeviceMoment) -> Iterator[Finding]:
    """Yields MD203."""
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
    yield Finding(
        "MD203",
        phrase("rounding.title", bytes=format_bytes(allocated - requested)),
        "warning",
        here.device.device,
        (
            Evidence(phrase("rounding.gap"), allocated - requested, "bytes", moment_name(here.device, here.after)),
            Evidence(phrase("rounding.least"), int((least - asked).sum()), "bytes"),
            Evidence(phrase("rounding.divided" if divided else "rounding.unsplit"), int(beyond.sum()), "bytes"),
            *_largest_places(here.view, live, beyond if beyond.any() else block - asked),
        ),
        present(here.settings.offer("exact-sizes" if divided else "expandable-segments"), _flat_buffer()),
        weight_bytes=allocated - requested,
    )


def _largest_places(view: DeviceView, rows: Array, lost: Array, *, tails: bool = False) -> Iterator[Evidence]:
    """Yields the call sites that lose most bytes.

    Args:
        tails: Whether to count bytes after tensors instead of inside their blocks.
    """
    stacks, inverse = np.unique(view.device.tensors.stack[rows], return_inverse=True)
    sums = np.zeros(len(stacks), np.int64)
    np.add.at(sums, inverse, lost)
    counts = np.bincount(inverse, minlength=len(stacks))
    for i in np.argsort(-sums, kind="stable")[:NUM_PLACES]:
        place = place_of(view, rows[inverse == i], view.label(int(stacks[i])))
        if sums[i] > 0 and (stacks[i] >= 0 or place):
            what = phrase("rounding.tails.place" if tails else "rounding.place", count=int(counts[i]))
            yield Evidence(what, int(sums[i]), "bytes", place)


def _flat_buffer() -> Fix:
    return Fix(phrase("rounding.fix.buffer"), "code", "", phrase("remedies.every"), phrase("remedies.together.caveat"))


def _tails(here: DeviceMoment) -> Iterator[Finding]:
    """Yields MD207: free tails after tensors of exact multiples of 2 MiB, in segments reserved for them."""
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
        phrase("rounding.tails.title", count=len(at), bytes=format_bytes(lost)),
        "warning",
        here.device.device,
        (
            Evidence(phrase("rounding.tails.free"), lost, "bytes", moment_name(here.device, here.after)),
            *_largest_places(here.view, row[at], tails, tails=True),
        ),
        present(
            here.settings.offer("expandable-segments"),
            Fix(
                phrase("rounding.tails.fix"),
                "code",
                "",
                phrase("rounding.tails.fix.when"),
                phrase("rounding.tails.fix.caveat"),
            ),
        ),
        # Without its tail, each of these segments is one page shorter; this is an upper bound, since another tensor may
        # use the tail.
        saving=Saving(0, len(at) * PAGE, len(at) * PAGE, "estimated") if at_peak else None,
        weight_bytes=lost,
    )
