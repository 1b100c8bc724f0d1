"""Where the reserved bytes are: the split of docs/fragmentation.md as rows, a title and a sentence."""

from __future__ import annotations

from memdiag import vocabulary
from memdiag.findings import DeviceReport, Usage
from memdiag.render.text import plain
from memdiag.render.words import SNAPSHOT, Row
from memdiag.units import format_bytes

PARTS = tuple(
    (key, style.glyph, vocabulary.ansi("part", key), vocabulary.meaning("part", key)) for key, style in vocabulary.STYLES["part"].items()
)
BLOCKS = ("allocated", "█", vocabulary.ansi("curve", "allocated"), "handed out; what was asked for is not known")
# Which request the split is seen from (docs/fragmentation.md, "Which request?").
REFERENCE_WORDS = {
    "this request": "the request made here",
    "next request": "the next request that needed new memory",
    "last request": "the last request that needed new memory",
    "largest request": "the largest request of the trace",
    "largest live": "another tensor as large as the largest one",
}
NO_SPLIT = "Unknown: the file does not say where in memory things are, so free ranges cannot be told apart."


def usage_then(device: DeviceReport) -> Usage | None:
    """Returns the bytes at the moment of the report; None where that is unknown."""
    here = device.moment
    return device.end if here is not None and here.kind == SNAPSHOT else here


def split(device: DeviceReport) -> list[Row]:
    """Returns the parts of what is reserved at the moment of the report, in the order of the bar; [] if none, or none is known.

    Shares are of what is reserved. Where only reserved - requested is known (the report tells what was requested at its peaks), they
    are of that. Where a file tells some parts only, one row stands for all the others.
    """
    f, usage = device.fragmentation, usage_then(device)
    sizes = {"requested": usage.requested_bytes if usage else None, "rounding": f.rounding_bytes, "pending": f.pending_bytes}
    sizes |= {"stranded": f.stranded_bytes, "foreign": f.foreign_bytes, "cache": f.cache_bytes}
    parts: tuple[tuple[str, str, str, str], ...] = PARTS
    if usage and usage.requested_bytes is None and f.rounding_bytes is None and usage.allocated_bytes is not None:
        sizes["allocated"], parts = usage.allocated_bytes, (BLOCKS, *PARTS[2:])
    unknown = {name for name, *_ in parts if sizes[name] is None} - {"requested"}
    rest = _rest(sizes, unknown, usage)
    total = sum(size for size in sizes.values() if size is not None) + (rest or 0)
    if (unknown and rest is None) or not total:
        return []

    def share(size: int) -> float:
        return size / total

    rows = [Row(name, size, share(size), meaning, *drawn) for name, *drawn, meaning in parts if (size := sizes[name]) is not None]
    if rest is not None:
        free = not {"rounding", "pending"} & unknown
        name, meaning = ("free", "not known whether it could be used") if free else ("rest", "not told apart by this file")
        rows.append(Row(name, rest, share(rest), meaning, "?", vocabulary.ansi("part", "cache")))
    return rows


def _rest(sizes: dict[str, int | None], unknown: set[str], usage: Usage | None) -> int | None:
    """What is reserved beside the parts that are known; None if none is unknown, or it cannot be told."""
    known = [size for size in sizes.values() if size is not None]
    if not unknown or not known or usage is None or usage.reserved_bytes is None:
        return None
    return max(usage.reserved_bytes - sum(known), 0)


def no_split(device: DeviceReport) -> str:
    """Returns why there are no parts to show."""
    f = device.fragmentation
    nothing = [f.rounding_bytes, f.pending_bytes, f.stranded_bytes, f.foreign_bytes, f.cache_bytes] == [0] * 5
    return "Nothing is reserved then that was not asked for." if nothing else NO_SPLIT


def split_title(device: DeviceReport) -> str:
    """Returns what the split is a split of."""
    rows = split(device)
    only_rest = bool(rows) and rows[0].name not in {"requested", "allocated"}
    return "Where reserved - requested is" if only_rest else "Where the reserved bytes are"


def fit(device: DeviceReport) -> str:
    """Returns whether the reference request would fit into what is reserved, as a sentence; "" if nothing is known of it."""
    f = device.fragmentation
    if f.reference_request_bytes is None:
        return "" if f.largest_free_bytes is None else f"Largest free range: {format_bytes(f.largest_free_bytes)}."
    kind = REFERENCE_WORDS.get(f.reference_kind or "", plain(f.reference_kind) if f.reference_kind else "a request")
    request = f"{kind[0].upper()}{kind[1:]} ({format_bytes(f.reference_request_bytes)})"
    if f.largest_free_bytes is None:
        return f"{request} is what it is seen from; the largest free range is unknown."
    here = f.reference_kind == "this request"
    missing = f.reference_request_bytes - f.largest_free_bytes
    found = f"the largest free range of its pool and stream has {format_bytes(f.largest_free_bytes)}"
    if missing <= 0:
        # What the request made here found did not fit: new memory was just taken for it.
        return f"{request} {'fits now, in the memory taken for it' if here else 'would fit'}: {found}."
    return f"{request} {'did' if here else 'would'} not fit: {found}, {format_bytes(missing)} too little."
