"""Segments that temporary tensors of initialisation leave behind, and that are never used later.

Loading a model allocates tensors that are freed again: a state dict, weights in another type, a copy before sharding.
Their segments stay in the cache. One call of ``empty_cache()`` releases completely free segments. A segment that also
holds a weight stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.analyzers.support.sites import by_place
from memdiag.diagnosis.remedies import present
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD125": "segments from initialisation stay empty or half empty"}

FLOOR = 64 * MIB
SHARE = 0.02  # fraction of reserved memory
WARNING_SHARE = 0.1
EMPTY = 0.5  # fraction of a segment that is free when initialisation ends
NUM_PLACES = 3

_TRAINING = [PHASES.index(name) for name in ("forward", "backward", "optimizer")]


@dataclass(frozen=True)
class Leftovers:
    """Segments left by initialisation.

    Attributes:
        at: Its last event.
        unused_bytes: Per segment, bytes free at that event and never used again before the moment of the report.
        whole: Per segment, whether it was completely free, and remained so.
        rows: Temporaries that were in these segments (rows of Tensors).
    """

    at: int
    unused_bytes: Array
    whole: Array
    rows: Array


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD125 of every device."""
    settings = AllocatorSettings.of(trace)
    for view in context.views(trace):
        yield from _left(view, settings)


def end_of_initialisation(device: DeviceTrace) -> int:
    """Returns the last event before the first step or forward, or -1 if the trace does not contain it."""
    training = (device.events.step >= 0) | np.isin(device.events.phase, _TRAINING)
    first = int(np.argmax(training)) if training.any() else 0
    return first - 1


def find_leftovers(view: DeviceView) -> Leftovers | None:
    """Returns segments that initialisation left partly empty and that were not filled later, or None."""
    device, tensors = view.device, view.device.tensors
    end = end_of_initialisation(device)
    if end < 0 or view.at <= end or not device.has_addresses:
        return None
    pieces = device.regions
    held = np.flatnonzero(
        (pieces.opened_at >= 0)
        & (pieces.opened_at <= end)
        & (pieces.closed_at > view.at)
        & ~pieces.expandable
        & (pieces.segment >= 0)
    )
    if not len(held):
        return None
    held = held[np.argsort(pieces.start[held], kind="stable")]
    start, size = pieces.start[held], pieces.size[held]
    placed = np.flatnonzero(tensors.group >= 0)
    home = np.searchsorted(start, tensors.addr[placed], side="right") - 1
    inside = (
        (home >= 0)
        & (tensors.addr[placed] < start[home] + size[home])
        & (tensors.free_completed_at[placed] > pieces.opened_at[held][home])
    )
    placed, home = placed[inside], home[inside]
    born, gone, length = tensors.alloc_at[placed], tensors.free_completed_at[placed], tensors.block_bytes[placed]

    def total(of: Array) -> Array:
        return np.bincount(home[of], weights=length[of], minlength=len(held)).astype(np.int64)

    used = total((born <= end) & (gone > end))
    # Later tensors may reuse the same bytes. Each counts in full, so the remainder is certainly unused.
    unused = np.maximum(size - used - total((born > end) & (born <= view.at)), 0)
    temporary = (born >= 0) & (gone <= end)
    left = (used <= (1 - EMPTY) * size) & (total(temporary) > 0) & (unused > 0)
    if not left.any():
        return None
    return Leftovers(end, unused[left], (unused == size)[left], placed[temporary & left[home]])


def _left(view: DeviceView, settings: AllocatorSettings) -> Iterator[Finding]:
    """Yields MD125."""
    found, device = find_leftovers(view), view.device
    reserved = int(device.usage_at(view.at)["reserved"])
    if found is None:
        return
    unused, whole = int(found.unused_bytes.sum()), int(found.unused_bytes[found.whole].sum())
    if unused < max(FLOOR, SHARE * reserved):
        return
    is_highest = reserved == max(int(device.usage.reserved.max()), device.start["reserved"])
    once = settings.offer("empty-cache", when=phrase("leftovers.fix.once.when"))
    order = Fix(
        phrase("leftovers.fix.order"),
        "code",
        "",
        phrase("leftovers.fix.order.when"),
        phrase("leftovers.fix.order.caveat"),
    )
    yield Finding(
        "MD125",
        phrase("leftovers.title", bytes=format_bytes(unused)),
        "warning" if unused >= WARNING_SHARE * reserved else "info",
        device.device,
        (
            Evidence(phrase("leftovers.unused"), unused, "bytes", moment_name(device, found.at)),
            Evidence(
                phrase("leftovers.whole"), whole, "bytes", phrase("scattered.segments", count=int(found.whole.sum()))
            ),
            Evidence(phrase("leftovers.segments"), len(found.unused_bytes), "segments"),
            *(
                Evidence(phrase("leftovers.temporaries"), place.bytes, "bytes", place.label)
                for place in by_place(view, found.rows)[:NUM_PLACES]
            ),
        ),
        present(once if whole else None, order if whole < unused else None, settings.offer("expandable-segments")),
        saving=Saving(whole, whole, unused, "estimated") if whole and is_highest else None,
        weight_bytes=unused,
    )
