"""The composition of reserved memory: the split of docs/fragmentation.md as rows, a title and a sentence."""

from __future__ import annotations

from memdiag import vocabulary
from memdiag.render.support.amounts import AmountRow
from memdiag.render.support.words import SNAPSHOT
from memdiag.results.report import DeviceReport, Usage
from memdiag.text import phrase, plain
from memdiag.units import format_bytes

PARTS = tuple(vocabulary.STYLES["part"])  # in the order of the bar
# The reference request of the split (docs/fragmentation.md, "Which request?"), by key of its phrase.
REFERENCES = {
    "this request": "this",
    "next request": "next",
    "last request": "last",
    "largest request": "largest",
    "largest live": "live",
}


def usage_then(device: DeviceReport) -> Usage | None:
    """Returns the bytes at the moment of the report, or None if unknown."""
    here = device.moment
    return device.end if here is not None and here.kind == SNAPSHOT else here


def split(device: DeviceReport) -> list[AmountRow]:
    """Returns the parts of reserved memory at the moment of the report, in the order of the bar; [] if unknown.

    Fractions refer to reserved memory. If only reserved - requested is known (the report has requested bytes at its
    peaks), they refer to that. If a file has only some parts, one row represents all others.
    """
    f, usage = device.fragmentation, usage_then(device)
    sizes = {
        "requested": usage.requested_bytes if usage else None,
        "rounding": f.rounding_bytes,
        "pending": f.pending_bytes,
    }
    sizes |= {"stranded": f.stranded_bytes, "foreign": f.foreign_bytes, "cache": f.cache_bytes}
    parts = PARTS
    if usage and usage.requested_bytes is None and f.rounding_bytes is None and usage.allocated_bytes is not None:
        sizes["allocated"], parts = usage.allocated_bytes, ("allocated", *PARTS[2:])
    unknown = {name for name in parts if sizes[name] is None} - {"requested"}
    rest = _rest(sizes, unknown, usage)
    total = sum(size for size in sizes.values() if size is not None) + (rest or 0)
    if (unknown and rest is None) or not total:
        return []

    rows = [_row(name, size, size / total) for name in parts if (size := sizes[name]) is not None]
    if rest is not None:
        free = not {"rounding", "pending"} & unknown
        name, meaning = ("report.free", "report.free.means") if free else ("report.rest", "report.rest.means")
        rows.append(AmountRow(phrase(name), rest, rest / total, phrase(meaning), "?", vocabulary.ansi("part", "cache")))
    return rows


def _row(part: str, size: int, share: float) -> AmountRow:
    if part == "allocated":
        return AmountRow(
            vocabulary.name("curve", part),
            size,
            share,
            phrase("report.allocated.means"),
            "█",
            vocabulary.ansi("curve", part),
        )
    name, meaning = vocabulary.name("part", part), vocabulary.meaning("part", part)
    return AmountRow(name, size, share, meaning, vocabulary.STYLES["part"][part].glyph, vocabulary.ansi("part", part))


def _rest(sizes: dict[str, int | None], unknown: set[str], usage: Usage | None) -> int | None:
    """Returns reserved memory outside the known parts, or None if all are known or it cannot be computed."""
    known = [size for size in sizes.values() if size is not None]
    if not unknown or not known or usage is None or usage.reserved_bytes is None:
        return None
    return max(usage.reserved_bytes - sum(known), 0)


def no_split(device: DeviceReport) -> str:
    """Returns why there are no parts to show."""
    f = device.fragmentation
    nothing = [f.rounding_bytes, f.pending_bytes, f.stranded_bytes, f.foreign_bytes, f.cache_bytes] == [0] * 5
    return phrase("report.split.none" if nothing else "report.split.unknown")


def split_title(device: DeviceReport) -> str:
    """Returns the title of the split."""
    rows = split(device)
    has_used = (
        not rows or device.fragmentation.rounding_bytes is None or rows[0].name == vocabulary.name("part", "requested")
    )
    return phrase("summary.split" if has_used else "report.split.difference")


def fit(device: DeviceReport) -> str:
    """Returns whether the reference request would fit into reserved memory, as a sentence; "" if unknown."""
    f = device.fragmentation
    if f.reference_request_bytes is None:
        return (
            ""
            if f.largest_free_bytes is None
            else phrase("report.fit.largest", largest=format_bytes(f.largest_free_bytes))
        )
    kind = REFERENCES.get(f.reference_kind or "")
    request = (
        phrase(f"report.reference.{kind}")
        if kind
        else plain(f.reference_kind)
        if f.reference_kind
        else phrase("report.reference")
    )
    size = format_bytes(f.reference_request_bytes)
    if f.largest_free_bytes is None:
        return phrase("report.fit.unknown", request=request, bytes=size)
    here = f.reference_kind == "this request"
    missing, largest = f.reference_request_bytes - f.largest_free_bytes, format_bytes(f.largest_free_bytes)
    if missing <= 0:
        # The request at this moment did not fit: new memory was just reserved for it.
        return phrase("report.fit.now" if here else "report.fit.yes", request=request, bytes=size, largest=largest)
    short = format_bytes(missing)
    return phrase(
        "report.fit.did-not" if here else "report.fit.no", request=request, bytes=size, largest=largest, missing=short
    )
