"""The words of a report: what each number means, for people who see these words for the first time.

The terminal and markdown renderers lay out the same rows; this is where the rows are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from memdiag.findings import SEVERITIES, DeviceReport, Evidence, Finding, Peak, Report, Saving, Usage
from memdiag.render.text import plain, shorten
from memdiag.units import format_bytes, format_count, format_us, plural

USAGE_WORDS = (
    ("reserved", "held from the driver"),
    ("active", "in use, or pending"),
    ("allocated", "handed out as blocks"),
    ("requested", "asked for by tensors"),
)
PARTS = (
    ("requested", "█", "green", "what live tensors asked for"),
    ("rounding", "▓", "blue", "lost to rounding sizes up to blocks"),
    ("pending", "▒", "yellow", "freed, but a stream may still use it"),
    ("stranded", "▚", "red", "free, but in pieces too small for the request"),
    ("foreign", "░", "magenta", "free, but tied to another pool or stream"),
    ("cache", "·", "cyan", "free and reusable"),
)
LIFETIME_WORDS = {
    "persistent": "from initialisation, kept",
    "optimizer_state": "made by the optimizer, kept",
    "survives_step": "outlives its training step",
    "forward_to_backward": "from forward to backward",
    "within_phase": "dies within its phase",
    "temporary": "dies almost at once",
    "unknown": "not known from this file",
}
# Which request the split is seen from (docs/fragmentation.md, "Which request?").
REFERENCE_WORDS = {
    "this request": "a request like the one made here",
    "next request": "the next request that needed new memory",
    "last request": "the last request that needed new memory",
    "largest request": "the largest request of the trace",
}
SNAPSHOT = "the snapshot"  # DeviceReport.at_label of a file without a trace
NO_SPLIT = "Unknown: the file does not say where in memory things are, so free ranges cannot be told apart."
SEVERITY_STYLE = {"critical": "bold red", "warning": "yellow", "info": "cyan", "ok": "green"}


class Row(NamedTuple):
    """One amount of memory with its name: ``share`` is of the whole (None: unknown), ``style`` a colour."""

    name: str
    bytes: int | None
    share: float | None
    meaning: str = ""
    glyph: str = "█"
    style: str = ""


def percent(share: float | None) -> str:
    """Returns ``84.8%``; ``<0.1%`` for what is there but small; "" for None."""
    if share is None:
        return ""
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def words(name: str) -> str:
    """Returns an identifier of the report as words: ``forward_to_backward`` as ``forward to backward``."""
    return plain(name).replace("_", " ")


def worst(findings: Sequence[Finding]) -> str:
    """Returns the highest severity among ``findings``; ``ok`` without any above info."""
    return next((s for s in SEVERITIES if s != "info" and any(f.severity == s for f in findings)), "ok")


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Returns findings the worst first, within a severity those about the most bytes first."""
    return sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -f.weight_bytes, f.code))


def headline(report: Report) -> str:
    """Returns the verdict in a sentence or two."""
    if report.headline:
        return plain(report.headline)
    found = [f for f in in_order(report.findings) if f.severity != "info"]
    return plain(found[0].title) + "." if found else "No problem was found in this trace."


def source_facts(report: Report) -> list[tuple[str, str]]:
    """Returns label and value of each fact about the file; what it does not say is ``unknown``."""
    source = report.source
    beginning = {True: "yes, from an empty allocator", False: "no, memory was in use already", None: "unknown"}
    facts = [
        ("file", plain(source.path)),
        ("kind", f"{plain(source.format)}, backend {plain(source.backend or 'unknown')}, torch {plain(source.torch_version or 'unknown')}"),
        ("holds", f"{plural(source.num_events, 'event')}, {plural(source.num_tensors, 'tensor')}, {_devices_words(report)}"),
        ("recorded from the start", beginning[source.complete_from_start]),
    ]
    if report.settings:
        facts.append(("settings", settings_words(report.settings)))
    if source.phantom:
        facts.append(("phantom", "recorded on a device that is not there; sizes are real, times are not"))
    return facts


def settings_words(settings: Mapping[str, object]) -> str:
    """Returns the allocator settings of a file on one line: what the environment asked for, else what is set to a plain value."""
    asked = {key: value for key, value in settings.items() if key.endswith("ALLOC_CONF")}
    if asked:
        return ", ".join(f"{plain(key)}={plain(value, 200)}" if value else f"{plain(key)} not set" for key, value in asked.items())
    values = [f"{plain(key)}={plain(value)}" for key, value in settings.items() if isinstance(value, str | bool | int | float)]
    return shorten(", ".join(values), 240) or "see --json"


def _devices_words(report: Report) -> str:
    if len(report.devices) == 1:
        return f"device {report.devices[0].device}"
    return plural(len(report.devices), "device")


def is_idle(device: DeviceReport) -> bool:
    """Whether a device is known to hold nothing at any time."""
    amounts = (device.peak.reserved_bytes, device.peak_allocated.allocated_bytes, device.end.reserved_bytes, device.end.allocated_bytes)
    known = [amount for amount in amounts if amount is not None]
    return bool(known) and not any(known)


def difference(usage: Usage) -> int | None:
    """Returns reserved - allocated, the number people know; None where either is unknown."""
    if usage.reserved_bytes is None or usage.allocated_bytes is None:
        return None
    return usage.reserved_bytes - usage.allocated_bytes


def at_words(peak: Peak) -> str:
    """Returns where a peak is: ``event 1,204``; before the first event: ``before the trace began``."""
    if peak.at_event is None:
        return "event unknown"
    return "before the trace began" if peak.at_event < 0 else f"event {format_count(peak.at_event)}"


def moments(device: DeviceReport) -> list[tuple[str, str, Usage]]:
    """Returns the columns of the usage table: title, where that is, and the bytes."""
    peak, other = device.peak, device.peak_allocated
    same = other.at_event == peak.at_event
    found: list[tuple[str, Peak]] = []
    if peak.reserved_bytes is not None:
        found.append(("peak" if same else "reserved peak", peak))
    if other.allocated_bytes is not None and not (found and same):
        found.append(("allocated peak", other))
    places = [(title, "before event 0" if p.at_event == -1 else at_words(p), p) for title, p in found]
    return [*places, (SNAPSHOT, "", device.end) if device.at_label == SNAPSHOT else ("end", "last event", device.end)]


def peak_place(device: DeviceReport) -> str:
    """Returns step and phase of the peak as words; "" if neither is known."""
    step = None if device.peak.step is None else f"step {format_count(device.peak.step)}"
    phase = None if device.peak.phase in (None, "unknown") else words(str(device.peak.phase))
    return ", ".join(part for part in (step, phase) if part)


def usage_then(device: DeviceReport) -> Usage | None:
    """Returns the bytes at the moment of the report, if that is one that the report tells; None otherwise."""
    at = device.fragmentation.at_event
    if at is None:
        return device.end if device.at_label == SNAPSHOT else None
    return next((peak for peak in (device.peak, device.peak_allocated) if peak.at_event == at), None)


def split(device: DeviceReport) -> list[Row]:
    """Returns the parts of what is reserved at the moment of the report, in the order of the bar; [] if nothing is known.

    Shares are of what is reserved. Where it is not known what was requested (the report tells that for the peaks only), they are of
    reserved - requested, and the row of requested is left out. Where parts are unknown, a last row stands for all of them.
    """
    f, usage = device.fragmentation, usage_then(device)
    sizes = {"requested": usage.requested_bytes if usage else None, "rounding": f.rounding_bytes, "pending": f.pending_bytes}
    sizes |= {"stranded": f.stranded_bytes, "foreign": f.foreign_bytes, "cache": f.cache_bytes}
    unknown = [name for name, size in sizes.items() if size is None and name != "requested"]
    known = sum(size for size in sizes.values() if size is not None)
    rest = None
    if unknown:
        if len(unknown) == 5 or usage is None or usage.reserved_bytes is None:
            return []
        rest = max(usage.reserved_bytes - known, 0)
    total = known + (rest or 0)
    rows = [
        Row(name, size, size / total if total else None, meaning, glyph, style)
        for name, glyph, style, meaning in PARTS
        if (size := sizes[name]) is not None
    ]
    if rest is not None:
        free = not {"rounding", "pending"} & set(unknown)
        name, meaning = ("free", "not known whether it could be used") if free else ("rest", "not told apart by this file")
        rows.append(Row(name, rest, rest / total if total else None, meaning, "?", "cyan"))
    return rows


def moment(device: DeviceReport) -> str:
    """Returns when the split was taken: ``at the peak (event 1,204)``, ``at event 7``; "" if unknown."""
    at = device.fragmentation.at_event
    if at is None:
        return f"at {SNAPSHOT}" if device.at_label == SNAPSHOT else ""
    where = f"event {format_count(at)}" if at >= 0 else "before event 0"
    return f"at the peak ({where})" if at == device.peak.at_event else f"at {where}"


def holders_moment(device: DeviceReport) -> str:
    """Returns when the lists of who holds memory were taken."""
    return "at the peak" if device.at_label == "peak" else moment(device) or f"at {plain(device.at_label)}"


def split_title(device: DeviceReport) -> str:
    """Returns what the split is a split of."""
    usage = usage_then(device)
    return "Where the reserved bytes are" if usage and usage.requested_bytes is not None else "Where reserved - requested is"


def fit(device: DeviceReport) -> str:
    """Returns whether the reference request would fit into what is reserved, as a sentence; "" if nothing is known of it."""
    f = device.fragmentation
    if f.reference_request_bytes is None:
        return "" if f.largest_free_bytes is None else f"Largest free range: {format_bytes(f.largest_free_bytes)}."
    kind = REFERENCE_WORDS.get(f.reference_kind or "", "a request" if not f.reference_kind else plain(f.reference_kind))
    request = f"{kind} ({format_bytes(f.reference_request_bytes)})"
    if f.largest_free_bytes is None:
        return f"Seen from {request}; the largest free range is unknown."
    found = f"Largest free range in its pool and stream: {format_bytes(f.largest_free_bytes)}; {request}"
    missing = f.reference_request_bytes - f.largest_free_bytes
    return f"{found} would fit." if missing <= 0 else f"{found} would not fit: {format_bytes(missing)} short."


def holders(amounts: dict[str, int] | None, meanings: dict[str, str] | None = None) -> list[Row]:
    """Returns who holds memory, the most first, without those that hold nothing; [] if unknown."""
    total = sum((amounts or {}).values())
    rows = [Row(shorten(words(n), 24), b, b / total, (meanings or {}).get(n, "")) for n, b in (amounts or {}).items() if b and total]
    return sorted(rows, key=lambda row: -(row.bytes or 0))


def counts(device: DeviceReport) -> str:
    """Returns the driver calls and failures of the trace as a sentence."""
    c = device.counts
    if all(value is None for value in c.values()):
        return "Driver calls and out-of-memory errors are unknown"

    def said(key: str, noun: str, many: str) -> str:
        value = c.get(key)
        return f"{many} unknown" if value is None else plural(value, noun, many)

    taken = said("num_segments_allocated", "segment taken", "segments taken")
    returned = said("num_segments_freed", "given back", "given back")
    retries = said("num_retries", "retry", "retries")
    ooms = said("num_ooms", "out-of-memory error", "out-of-memory errors")
    return f"{taken}, {returned}; {retries}, {ooms}"


def value_words(evidence: Evidence) -> str:
    """Returns the number of a piece of evidence with its unit."""
    value, unit = evidence.value, evidence.unit
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "unknown"
    if isinstance(value, str):
        return plain(value)
    if unit == "bytes":
        return format_bytes(round(value))
    if unit.startswith("bytes/"):
        return f"{format_bytes(round(value))} a {words(unit[6:])}"
    if unit == "us":
        return format_us(round(value))
    if unit == "ratio":
        return percent(value) if 0 <= value <= 1 else f"{value:.2f} times"
    number = format_count(value) if isinstance(value, int) else f"{value:,.2f}".rstrip("0").rstrip(".")
    if not unit:
        return number
    return f"{number} {words(unit[:-1] if value == 1 and unit.endswith('s') else unit)}"


def saving_words(saving: Saving) -> str:
    """Returns ``about 1.40 GiB (1.20 GiB to 1.50 GiB, simulated)``."""
    low, expected, high = (format_bytes(b) for b in (saving.low_bytes, saving.expected_bytes, saving.high_bytes))
    spread = "" if saving.low_bytes == saving.high_bytes else f"{low} to {high}, "
    return f"about {expected} at the peak ({spread}{saving.basis})"
