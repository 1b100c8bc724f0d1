"""The words of a report: what each number means, for people who see these words for the first time.

The terminal and markdown renderers lay out the same rows; this is where the rows are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from memdiag import vocabulary
from memdiag.findings import SEVERITIES, DeviceReport, Evidence, Finding, Peak, Report, Saving, Severity, Source, Usage
from memdiag.render.text import plain, shorten
from memdiag.units import format_bytes, format_count, format_us, plural

USAGE_WORDS = tuple((key, vocabulary.meaning("curve", key)) for key in vocabulary.STYLES["curve"])
BASIS_WORDS = {
    "annotations+stacks": "inferred from named spans and stacks",
    "annotations": "inferred from named spans",
    "stacks": "inferred from stacks",
    "periodicity": "inferred from sizes that repeat",
}
SNAPSHOT = "snapshot"  # kind of the moment of a file without a trace
MOST_MOMENTS = 3  # columns of the usage table
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


def worst(findings: Sequence[Finding]) -> Severity | Literal["ok"]:
    """Returns the highest severity among ``findings``; ``ok`` without any above info."""
    return next((s for s in SEVERITIES if s != "info" and any(f.severity == s for f in findings)), "ok")


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Returns findings the worst first, within a severity in the report's own order."""
    return sorted(findings, key=lambda f: SEVERITIES.index(f.severity))


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
    if source.bases and (known := bases_words(source)):
        facts.append(("known from", known))
    if report.settings:
        facts.append(("settings", settings_words(report.settings)))
    if source.phantom:
        facts.append(("phantom", "recorded on a device that is not there; sizes are real, times are not"))
    return facts


def bases_words(source: Source) -> str:
    """Returns what phases, steps and categories rest on: ``phases, steps, categories: marked by the recorder``; "" if none is known."""
    marked = "marked by the recorder" if source.format == "torch-snapshot" else "told by the file"
    by_words: dict[str, list[str]] = {}
    for key, name in (("phase", "phases"), ("step", "steps"), ("category", "categories")):
        basis = source.bases.get(key, "none")
        by_words.setdefault(marked if basis == "marks" else BASIS_WORDS.get(basis, "unknown"), []).append(name)
    return "" if list(by_words) == ["unknown"] else "; ".join(f"{', '.join(names)}: {said}" for said, names in by_words.items())


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
    """Returns the columns of the usage table: title, where that is, and the bytes.

    The moment of the report is the first. The reserved and the allocated peak follow where they are higher, then the end.
    """
    here, found = device.moment, list[tuple[str, Peak]]()
    if here is not None and here.kind == SNAPSHOT:
        return [(vocabulary.title(SNAPSHOT), "", device.end)]
    if here is not None and here.kind != "end":
        found.append((vocabulary.title(here.kind), here))
    for kind, peak in (("reserved", device.peak), ("allocated", device.peak_allocated)):
        highest = getattr(peak, f"{kind}_bytes")
        if highest is not None and all(highest > (getattr(known, f"{kind}_bytes") or 0) for _, known in found):
            found.append((vocabulary.title(kind), peak))
    places: list[tuple[str, str, Usage]] = [(title, "before event 0" if p.at_event == -1 else at_words(p), p) for title, p in found]
    return [*places, ("end", "last event", device.end)][: max(len(places), MOST_MOMENTS)]


def card(device: DeviceReport) -> str:
    """Returns how large the card is, and how much of it the allocator could hold; "" where the recording does not say both."""
    found = device.card
    if found is None or found.capacity_bytes is None or found.outside_bytes is None:
        return ""
    sizes = [f"{format_bytes(found.room_bytes)} of room for the allocator", f"{format_bytes(found.outside_bytes)} outside it"]
    return f"The card has {format_bytes(found.capacity_bytes)}: {' and '.join(sizes)} (context, NCCL or HCCL, other processes)"


def moment_place(device: DeviceReport) -> str:
    """Returns step and phase of the moment of the report as words; "" if neither is known."""
    here = device.moment or device.peak
    step = None if here.step is None else f"step {format_count(here.step)}"
    phase = None if here.phase in (None, "unknown") else words(str(here.phase))
    return ", ".join(part for part in (step, phase) if part)


def moment(device: DeviceReport) -> str:
    """Returns the moment of the report: ``at the peak (event 1,204)``, ``at event 7``; "" if unknown."""
    here = device.moment
    if here is None:
        return ""
    name = vocabulary.when(here.kind) if here.kind != "event" else ""
    if here.at_event is None or here.kind == SNAPSHOT:
        return name
    where = f"event {format_count(here.at_event)}" if here.at_event >= 0 else "before event 0"
    return f"{name} ({where})" if name else f"at {where}" if here.at_event >= 0 else where


def holders(amounts: dict[str, int] | None, kind: vocabulary.Kind) -> list[Row]:
    """Returns which categories or lifetimes (``kind``) hold memory, the most first, without those that hold nothing; [] if unknown."""
    total = sum((amounts or {}).values())
    rows = [
        Row(
            shorten(plain(vocabulary.name(kind, key)), 24),
            size,
            size / total,
            vocabulary.meaning(kind, key),
            style=vocabulary.ansi(kind, key),
        )
        for key, size in (amounts or {}).items()
        if size and total
    ]
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
