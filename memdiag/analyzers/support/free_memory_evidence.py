"""Evidence on free memory relative to one request: its split, the fit, and facts from the whole trace."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.analyzers.support.names import has_names, place_of
from memdiag.analyzers.support.places import group_name, moment_name
from memdiag.diagnosis.facts import Facts
from memdiag.results.finding import Evidence
from memdiag.text import phrase
from memdiag.trace.model import DeviceTrace
from memdiag.trace.table import Array
from memdiag.units import format_bytes

_NUM_PLACES = 3  # number of names in one piece of evidence


def split_evidence(here: DeviceMoment) -> Iterator[Evidence]:
    """Yields the free bytes that the request cannot use, and the reasons."""
    if not here.is_split_known:
        return
    yield Evidence(phrase("fragmentation.split.lost"), here.lost_bytes, "bytes", here.name)
    yield Evidence(phrase("fragmentation.split.stranded"), here.split["stranded"], "bytes")
    if here.split["foreign"]:
        yield Evidence(phrase("fragmentation.split.foreign"), here.split["foreign"], "bytes")


def fit_evidence(here: DeviceMoment) -> Iterator[Evidence]:
    """Yields the largest free range and, if the request does not fit, the missing bytes."""
    fit = here.fit
    largest = phrase("fragmentation.fit.largest", count=fit.num_free, bytes=format_bytes(fit.free_bytes))
    yield Evidence(largest, fit.largest_free_bytes, "bytes", group_name(here.device, here.group))
    if fit.fits:
        return
    yield Evidence(phrase("fragmentation.fit.missing"), fit.missing_bytes, "bytes")
    if not fit.range_bytes:
        yield Evidence(phrase("fragmentation.fit.none"), 0, "segments")
        return
    text = phrase("fragmentation.fit.between", count=len(fit.between), bytes=format_bytes(fit.range_bytes))
    yield Evidence(text, fit.between_bytes, "bytes", _places(here, fit.between))


def _places(here: DeviceMoment, rows: Array) -> str:
    """Returns the names of the call sites with the most bytes among the given tensors."""
    sizes = here.device.tensors.block_bytes
    of_label: dict[str, list[int]] = {}
    for row in rows.tolist() if len(rows) <= 1000 else rows[np.argsort(-sizes[rows])[:1000]].tolist():
        of_label.setdefault(here.view.label(int(here.device.tensors.stack[row])), []).append(row)
    places = {label: np.array(own) for label, own in of_label.items() if label or has_names(here.view)}
    largest = sorted(places, key=lambda label: -int(sizes[places[label]].sum()))
    return "; ".join(place for label in largest[:_NUM_PLACES] if (place := place_of(here.view, places[label], label)))


def history_evidence(here: DeviceMoment) -> Iterator[Evidence]:
    """Yields the moment with the most stranded memory, and the segments reserved despite enough free memory."""
    device = here.device
    references, stranded = device.references, device.usage.stranded
    opened = np.flatnonzero((references.opened_at < references.at_event) & ~references.failed)
    if not len(opened):
        return
    begin = references.opened_at[opened]
    worst = int(begin[np.argmax(stranded[begin])])
    if stranded[worst] > max(here.split["stranded"], 0):
        yield Evidence(phrase("fragmentation.most"), int(stranded[worst]), "bytes", moment_name(device, worst))
    needless = opened[stranded[references.opened_at[opened]] >= references.size[opened]]
    if not len(needless):
        return
    first, last = references.opened_at[needless], references.at_event[needless]
    regions = device.regions
    request = np.minimum(np.searchsorted(last, regions.opened_at), len(needless) - 1)
    mine = (regions.opened_at >= first[request]) & (regions.opened_at <= last[request])
    text = phrase("fragmentation.needless", count=len(needless), requests=len(opened))
    yield Evidence(text, int(regions.size[mine].sum()), "bytes")


def above_active(device: DeviceTrace) -> int:
    """Returns the reserved peak minus the active peak: even a perfect allocator needs the latter."""
    reserved = max(int(device.usage.reserved.max(initial=0)), device.start["reserved"])
    return reserved - max(int(device.usage.active.max(initial=0)), device.start["active"])


def outside_evidence(here: DeviceMoment, facts: Facts) -> Iterator[Evidence]:
    """Yields the device memory outside the allocator, if the file has it."""
    if here.device_free_bytes is not None:
        yield Evidence(phrase("fragmentation.outside.free"), here.device_free_bytes, "bytes")
    if facts.outside is not None:
        yield Evidence(phrase("fragmentation.outside"), facts.outside, "bytes")
