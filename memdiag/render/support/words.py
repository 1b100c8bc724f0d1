"""The words of a report: the meaning of each number, for first-time readers.

This module builds the rows that both the terminal and the markdown renderer draw.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from memdiag import vocabulary
from memdiag.render.support.amounts import AmountRow, percent
from memdiag.results.finding import SEVERITIES, Evidence, Finding, Saving, Severity
from memdiag.results.report import EARLIER_STEPS, DeviceReport, Peak, Report, TraceSource, Usage
from memdiag.text import Phrase, joined, phrase, plain, sentence, shorten
from memdiag.units import format_bytes, format_count, format_us

USAGE = tuple(vocabulary.STYLES["curve"])  # the rows of the usage table
# kinds of evidence from which phases, steps and categories may be inferred
BASES = (
    "annotations+stacks",
    "annotations",
    "stacks",
    "periodicity",
)
SNAPSHOT = "snapshot"  # kind of the moment of a file without a trace
UNITS = (
    "allocations",
    "calls",
    "chains",
    "errors",
    "events",
    "graphs",
    "lists",
    "places",
    "segments",
    "sizes",
    "steps",
    "tensors",
    "times",
)
# Names that stand for the module of tensors without one (analyzers/names.py), by key of its phrase.
MODULES = {"(outside of any module)": "outside", "(the model itself)": "model", "(no name)": "no-name"}
_GUESS = re.compile(r"(?P<since>[\d.]+) (?:to (?P<until>[\d.]+)|or later)\?")
MOST_MOMENTS = 3  # columns of the usage table
SEVERITY_STYLE = {"critical": "bold red", "warning": "yellow", "info": "cyan", "ok": "green"}


def words(name: str) -> str:
    """Returns an identifier of the report as words: ``forward_to_backward`` as ``forward to backward``."""
    return plain(name).replace("_", " ")


def worst(findings: Sequence[Finding]) -> Severity | Literal["ok"]:
    """Returns the highest severity among ``findings``, or ``ok`` if all are info."""
    return next((s for s in SEVERITIES if s != "info" and any(f.severity == s for f in findings)), "ok")


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Returns findings worst first; within a severity in the report's order."""
    return sorted(findings, key=lambda f: SEVERITIES.index(f.severity))


def headline(report: Report) -> str:
    """Returns the verdict in a sentence or two."""
    if report.headline:
        return plain(report.headline)
    found = [f for f in in_order(report.findings) if f.severity != "info"]
    return sentence(plain(found[0].title)) if found else phrase("report.no-problem")


def amount(size: int | None) -> str:
    """Returns bytes with their unit; ``unknown`` in the active language for None."""
    return unknown() if size is None else format_bytes(size)


def unknown() -> str:
    """Returns ``unknown`` in the active language."""
    return phrase("summary.unknown")


class Fact(NamedTuple):
    """One fact about the file: its key, its label, its value."""

    key: str
    label: str
    value: str


def source_facts(report: Report) -> list[Fact]:
    """Returns the facts about the file; missing ones are ``unknown``."""
    source = report.source
    beginning = {True: phrase("report.start.yes"), False: phrase("report.start.no"), None: unknown()}
    kind = phrase(
        "report.fact.kind.value",
        format=plain(source.format),
        backend=plain(source.backend or unknown()),
        torch=version_words(source.torch_version),
    )
    sizes = [
        phrase("report.events", count=source.num_events),
        phrase("report.tensors", count=source.num_tensors),
        _devices_words(report),
    ]
    facts = [
        Fact("file", phrase("report.fact.file"), plain(source.path)),
        Fact("kind", phrase("report.fact.kind"), kind),
        Fact("holds", phrase("report.fact.holds"), joined(sizes, ", ")),
        Fact("start", phrase("report.fact.start"), beginning[source.complete_from_start]),
    ]
    if source.bases and (known := bases_words(source)):
        facts.append(Fact("known", phrase("report.fact.known"), known))
    if report.settings:
        facts.append(Fact("settings", phrase("report.fact.settings"), settings_words(report.settings)))
    if source.is_phantom:
        facts.append(Fact("phantom", phrase("report.fact.phantom"), phrase("report.phantom")))
    return facts


def version_words(version: str | None) -> str:
    """Returns the version of torch; an inferred one (``2.13 or later?``) in the active language."""
    if version is None:
        return unknown()
    found = _GUESS.fullmatch(version)
    if found is None:
        return plain(version)
    since, until = found["since"], found["until"]
    return (
        phrase("report.version.between", since=since, until=until)
        if until
        else phrase("report.version.since", since=since)
    )


def bases_words(source: TraceSource) -> str:
    """Returns the bases of phases, steps and categories, or "".

    For example: ``phases, steps, categories: marked by the recorder``.
    """
    marked = phrase("report.basis.recorder") if source.format == "torch-snapshot" else phrase("report.basis.file")
    names: dict[str, list[str]] = {}
    for key in ("phase", "step", "category"):
        basis = source.bases.get(key, "none")
        words_of = (
            marked
            if basis == "marks"
            else phrase(f"report.basis.{basis.replace('+', '-')}")
            if basis in BASES
            else unknown()
        )
        names.setdefault(words_of, []).append(phrase(f"report.bases.{key}"))
    if source.bases.get("lifetime", "none").endswith(EARLIER_STEPS):
        names.setdefault(vocabulary.earlier_steps(), []).append(phrase("report.bases.open-lifetimes"))
    if list(names) == [unknown()]:
        return ""
    return joined(
        [phrase("report.bases", names=joined(each, ", "), basis=basis) for basis, each in names.items()], "; "
    )


def settings_words(settings: Mapping[str, object]) -> str:
    """Returns the allocator settings of a file on one line: those of the environment, else those with a plain value."""
    asked = {key: value for key, value in settings.items() if key.endswith("ALLOC_CONF")}
    if asked:
        written = (
            f"{plain(key)}={plain(value, 200)}" if value else phrase("report.not-set", name=plain(key))
            for key, value in asked.items()
        )
        return joined(written, ", ")
    values = [
        f"{plain(key)}={plain(value)}" for key, value in settings.items() if isinstance(value, str | bool | int | float)
    ]
    return shorten(", ".join(values), 240) or phrase("report.see-json")


def _devices_words(report: Report) -> str:
    if len(report.devices) == 1:
        return phrase("report.device", device=str(report.devices[0].device))
    return phrase("report.devices", count=len(report.devices))


def is_idle(device: DeviceReport) -> bool:
    """Returns whether a device is known to hold nothing at any time."""
    amounts = (
        device.peak.reserved_bytes,
        device.peak_allocated.allocated_bytes,
        device.end.reserved_bytes,
        device.end.allocated_bytes,
    )
    known = [amount for amount in amounts if amount is not None]
    return bool(known) and not any(known)


def difference(usage: Usage) -> int | None:
    """Returns reserved - allocated, the number people know; None if either is unknown."""
    if usage.reserved_bytes is None or usage.allocated_bytes is None:
        return None
    return usage.reserved_bytes - usage.allocated_bytes


def at_words(peak: Peak) -> str:
    """Returns the event of a peak: ``event 1,204``; before the first event: ``before the trace``."""
    return phrase("report.event.unknown") if peak.at_event is None else event_words(peak.at_event)


def event_words(event: int) -> Phrase:
    """Returns ``event 1,204``; ``before the trace`` for -1."""
    return phrase("places.before") if event < 0 else phrase("places.event", at=event)


def moments(device: DeviceReport) -> list[tuple[str, str, Usage]]:
    """Returns the columns of the usage table: title, event, and the bytes.

    The moment of the report is the first. The reserved and the allocated peak follow if they are higher, then the end.
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
    places: list[tuple[str, str, Usage]] = [(title, at_words(p), p) for title, p in found]
    return [*places, (vocabulary.title("end"), phrase("report.last-event"), device.end)][
        : max(len(places), MOST_MOMENTS)
    ]


def card(device: DeviceReport) -> str:
    """Returns the size of the device and the allocator's share of it, or "" if the recording lacks either."""
    found = device.card
    if found is None or found.capacity_bytes is None or found.outside_bytes is None:
        return ""
    sizes = {"capacity": found.capacity_bytes, "room": found.usable_bytes, "outside": found.outside_bytes}
    said = [phrase("report.card", **{name: amount(size) for name, size in sizes.items()})]
    if found.library_bytes is not None:
        said.append(phrase("report.card.libraries", bytes=amount(found.library_bytes)))
    if found.outside_error_bytes:
        said.append(phrase("report.card.error", error=amount(found.outside_error_bytes)))
    return joined(said, " ")


def moment_place(device: DeviceReport) -> str:
    """Returns step and phase of the moment of the report as words, or "" if neither is known."""
    here = device.moment or device.peak
    step = "" if here.step is None else phrase("places.step", step=format_count(here.step))
    phase = "" if here.phase in (None, "unknown") else plain(vocabulary.name("phase", str(here.phase)))
    return joined([step, phase], ", ")


def moment(device: DeviceReport) -> str:
    """Returns the moment of the report: ``at the peak (event 1,204)``, ``at event 7``, or "" if unknown."""
    here = device.moment
    if here is None:
        return ""
    name = vocabulary.when(here.kind) if here.kind != "event" else ""
    if here.at_event is None or here.kind == SNAPSHOT:
        return name
    where = event_words(here.at_event)
    if name:
        return phrase("report.moment", when=name, event=where)
    return phrase("places.when.event", event=where) if here.at_event >= 0 else where


def holders(amounts: dict[str, int] | None, kind: vocabulary.Kind) -> list[AmountRow]:
    """Returns the categories or lifetimes (``kind``) that hold memory, the largest first; [] if unknown."""
    total = sum((amounts or {}).values())
    rows = [
        AmountRow(
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
        return phrase("report.counts.unknown")

    def counted(key: str, known: str, missing: str) -> str:
        value = c.get(key)
        return phrase(missing) if value is None else phrase(known, count=value)

    segments = [
        counted("num_segments_allocated", "report.counts.reserved", "report.counts.reserved.unknown"),
        counted("num_segments_freed", "report.counts.released", "report.counts.released.unknown"),
    ]
    failures = [
        counted("num_retries", "report.counts.retries", "report.counts.retries.unknown"),
        counted("num_ooms", "report.counts.ooms", "report.counts.ooms.unknown"),
    ]
    return phrase("report.counts", segments=joined(segments, ", "), failures=joined(failures, ", "))


def module_words(name: str) -> str:
    """Returns the name of a module; names for tensors outside all modules are in the active language."""
    return phrase(f"report.module.{MODULES[name]}") if name in MODULES else plain(name)


def value_words(evidence: Evidence) -> str:
    """Returns the number in a piece of evidence with its unit."""
    value, unit = evidence.value, evidence.unit
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return unknown()
    if isinstance(value, str):
        return plain(value)
    if unit == "bytes":
        return format_bytes(round(value))
    if unit == "bytes/step":
        return phrase("report.unit.bytes-step", bytes=format_bytes(round(value)))
    if unit == "us":
        return format_us(round(value))
    if unit == "ratio":
        return percent(value) if 0 <= value <= 1 else phrase("report.unit.ratio", value=f"{value:.2f}")
    number = format_count(value) if isinstance(value, int) else f"{value:,.2f}".rstrip("0").rstrip(".")
    if not unit:
        return number
    if unit in UNITS:
        return phrase(f"report.unit.{unit}", number=number, count=1 if value == 1 else 2)
    return f"{number} {words(unit)}"


def saving_words(saving: Saving) -> str:
    """Returns ``about 1.40 GiB at the peak (1.20 GiB to 1.50 GiB, simulated)``."""
    low, expected, high = (format_bytes(b) for b in (saving.low_bytes, saving.expected_bytes, saving.high_bytes))
    basis = phrase(f"verdict.basis.{saving.basis}")
    if saving.low_bytes == saving.high_bytes:
        return phrase("report.saving", bytes=expected, basis=basis)
    return phrase("report.saving.between", bytes=expected, low=low, high=high, basis=basis)


def severity_name(severity: str) -> str:
    """Returns a severity as reports print it: ``CRITICAL``."""
    return phrase(f"summary.severity.{severity}")
