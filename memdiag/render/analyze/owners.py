"""Tables that a report has only if the file contains their data: notes of the program, compiled code, host memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memdiag.render.support import words
from memdiag.render.support.card_timeline import card_rows
from memdiag.results.host import HostMoment, PinnedMemory
from memdiag.results.report import DeviceReport, Report
from memdiag.results.sites import ModuleUsage
from memdiag.text import phrase, plain
from memdiag.units import format_bytes

_LONGEST = 90  # characters of a name
# Rows of the table of host memory: fields of HostMoment.
_SIZES = (
    "rss_bytes",
    "children_rss_bytes",
    "pss_bytes",
    "peak_rss_bytes",
    "shm_used_bytes",
    "cgroup_used_bytes",
    "pinned_bytes",
    "pinned_used_bytes",
    "mps_used_bytes",
    "mps_driver_bytes",
)


@dataclass(frozen=True)
class OwnerTable:
    """A table of amounts.

    Attributes:
        title: Its title.
        lead: A sentence below the title, or "".
        head: Titles of its columns: amounts first, the owner last.
        rows: Texts of its cells.
    """

    title: str
    lead: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def of_device(device: DeviceReport) -> Iterator[OwnerTable]:
    """Yields the tables of one device."""
    if (card := card_rows(device.card_timeline)) is not None:
        yield OwnerTable(phrase("report.card-time.title"), card.lead, card.head, card.rows)
    for usages, key in ((device.by_label, "label"), (device.by_compiled_region, "region")):
        if usages:
            yield OwnerTable(
                phrase(f"report.{key}.title", moment=words.moment(device)),
                phrase(f"report.{key}.lead"),
                _head(phrase(f"report.{key}")),
                _rows(usages),
            )


def of_host(report: Report) -> Iterator[OwnerTable]:
    """Yields the tables of host memory."""
    if report.host is not None and report.host.timeline:
        yield _host(report.host.timeline)
    if report.host is not None and (pinned := report.host.pinned) is not None:
        yield OwnerTable(
            phrase("report.pinned.title"),
            phrase("report.pinned.lead"),
            (phrase("report.pinned.reserved"), phrase("report.pinned.in-use"), phrase("report.pinned.when")),
            tuple(_pinned_rows(pinned)),
        )
        if pinned.top_sites:
            sites = tuple(
                (format_bytes(site.bytes), f"{site.num_tensors:,}", plain(site.name, _LONGEST))
                for site in pinned.top_sites
            )
            yield OwnerTable(phrase("report.pinned.sites"), "", _head(phrase("report.site")), sites)


def _host(timeline: Sequence[HostMoment]) -> OwnerTable:
    """Returns host memory at the start, the peak and the end."""
    rows = []
    for name in _SIZES:
        known = [size for moment in timeline if (size := getattr(moment, name)) is not None]
        if any(known):
            rows.append(
                (*(format_bytes(size) for size in (known[0], max(known), known[-1])), _host_name(name, timeline))
            )
    heads = ("start", "peak", "end", "what")
    return OwnerTable(
        phrase("report.host.title"),
        phrase("report.host.lead"),
        tuple(phrase(f"report.host.{head}") for head in heads),
        tuple(rows),
    )


def _host_name(name: str, timeline: Sequence[HostMoment]) -> str:
    """Returns the name of a row, with the number of child processes or the limit."""
    children = max((moment.num_children or 0 for moment in timeline), default=0)
    limit = next((moment.cgroup_limit_bytes for moment in timeline if moment.cgroup_limit_bytes), None)
    total = next((moment.shm_total_bytes for moment in timeline if moment.shm_total_bytes), None)
    metal = next((moment.mps_limit_bytes for moment in timeline if moment.mps_limit_bytes), None)
    amounts = {"limit": limit, "total": total, "metal": metal}
    words_of = {"count": children, **{key: words.amount(size) for key, size in amounts.items()}}
    return phrase(f"report.host.{name.removesuffix('_bytes')}", **words_of)


def _pinned_rows(pinned: PinnedMemory) -> Iterator[tuple[str, str, str]]:
    if pinned.peak_reserved_bytes is not None:
        yield (
            format_bytes(pinned.peak_reserved_bytes),
            words.amount(pinned.peak_allocated_bytes),
            phrase("report.pinned.peak"),
        )
    yield (
        format_bytes(pinned.end_reserved_bytes),
        format_bytes(pinned.end_allocated_bytes),
        phrase("report.pinned.end", count=pinned.num_blocks),
    )


def _head(owner: str) -> tuple[str, ...]:
    return (phrase("report.bytes"), phrase("report.num-tensors"), owner)


def _rows(usages: Sequence[ModuleUsage]) -> tuple[tuple[str, ...], ...]:
    return tuple((format_bytes(each.bytes), f"{each.num_tensors:,}", plain(each.name, _LONGEST)) for each in usages)
