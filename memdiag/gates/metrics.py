"""The metrics that can be checked: name, unit, and why a trace may lack them.

Free memory refers to the moment of the report, as in ``memdiag analyze``. A metric that the trace lacks is None and has
a reason; it is never 0.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memdiag import vocabulary
from memdiag.errors import MemdiagError
from memdiag.registry import ANALYZERS
from memdiag.results.check import Number, Unit
from memdiag.text import phrase
from memdiag.units import format_bytes, format_count

if TYPE_CHECKING:
    from memdiag.results.compare import Side
    from memdiag.results.report import Report
    from memdiag.trace.model import DeviceTrace


_CODE = re.compile(r"MD[0-9]{3}")
# For growth from step to step: the number of step ends that memdiag.analyzers.leaks needs, and one that may be
# incomplete.
_ENOUGH_STEPS = 5
# Reasons why a file lacks a metric.
_NO_HISTORY, _NO_PLACES, _NO_CALLS, _NO_STEPS = "history", "places", "calls", "steps"
_LACKS = (_NO_HISTORY, _NO_PLACES, _NO_CALLS, _NO_STEPS)


@dataclass(frozen=True)
class Metric:
    """A metric; higher is worse.

    Attributes:
        name: "peak_reserved", …
        unit: Unit of its values.
        meaning: Description in words.
        share_of: Reference of a percentage in a budget: "reserved" (at the peak), "device" (its memory), or "".
        is_watched: Whether it is compared with a baseline by default. Kinds of free memory vary between equally good
            runs, so they are compared only on request.
    """

    name: str
    unit: Unit
    meaning: str
    share_of: Literal["reserved", "device", ""] = ""
    is_watched: bool = False


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("peak", "bytes", "highest reserved bytes; if they are unknown, highest allocated bytes", "device"),
        Metric("peak_reserved", "bytes", "highest bytes reserved from the driver", "device", is_watched=True),
        Metric("peak_allocated", "bytes", "highest bytes in blocks of live tensors", "device", is_watched=True),
        Metric(
            "peak_active", "bytes", "highest bytes in blocks that are live, or freed but waiting for a stream", "device"
        ),
        Metric("peak_requested", "bytes", "highest bytes that live tensors requested", "device", is_watched=True),
        Metric("end_reserved", "bytes", "bytes reserved from the driver at the end", "device"),
        Metric("end_allocated", "bytes", "bytes in blocks of live tensors at the end", "device"),
        Metric("rounding", "bytes", "at the moment of the report: bytes lost by rounding sizes up", "reserved"),
        Metric("pending", "bytes", "at the moment of the report: freed bytes that a stream may still use", "reserved"),
        Metric(
            "stranded",
            "bytes",
            "at the moment of the report: free bytes in blocks too small for the request",
            "reserved",
        ),
        Metric("foreign", "bytes", "at the moment of the report: free bytes in other pools or streams", "reserved"),
        Metric("cache", "bytes", "at the moment of the report: free bytes that the request can use", "reserved"),
        Metric("retries", "count", "requests for which the allocator released cached memory first", is_watched=True),
        Metric("ooms", "count", "requests that failed", is_watched=True),
        Metric(
            "device_allocs_per_step",
            "count/step",
            "segments reserved from the driver per training step",
            is_watched=True,
        ),
        Metric("leak_per_step", "bytes/step", "growth of live memory per training step (MD301)", is_watched=True),
        Metric("critical", "count", "number of critical findings"),
        Metric("warnings", "count", "number of critical findings and warnings"),
    )
}


@dataclass(frozen=True)
class Measured:
    """The metrics of one device of a trace.

    Attributes:
        values: Values by name; finding codes have their number of occurrences. None if unknown.
        unknown: Why a metric is unknown.
        reserved_bytes: Reserved bytes at the moment of the split, the reference for percentages; None if unknown.
        capacity_bytes: Bytes of the device, or None if unknown.
        request_bytes: Reference request for free memory, or None.
    """

    values: Mapping[str, Number | None]
    unknown: Mapping[str, str]
    reserved_bytes: int | None
    capacity_bytes: int | None
    request_bytes: int | None = None

    def value(self, name: str) -> Number | None:
        """Returns a metric, or the number of occurrences of a finding; None if unknown."""
        return self.values.get(name, 0 if _CODE.fullmatch(name) else None)


def metric_of(name: str) -> Metric:
    """Returns the metric with a name; for a finding code, its number of occurrences.

    Raises:
        MemdiagError: The metric does not exist.
    """
    word = name.strip().lower().replace("-", "_")
    if word in METRICS:
        return METRICS[word]
    if _CODE.fullmatch(word.upper()):
        return Metric(word.upper(), "count", f"findings {word.upper()}")
    near = difflib.get_close_matches(word, METRICS, 1, 0.6)
    known = f"did you mean {near[0]}?" if near else f"one of {', '.join(METRICS)}, or a finding code such as MD201"
    raise MemdiagError(phrase("errors.metric", name=str(name)), known)


def measure(device: DeviceTrace, side: Side, report: Report) -> Measured:
    """Returns every metric of one device.

    Args:
        device: The device.
        side: Its memory at the peak.
        report: The analysis of this device.
    """
    values: dict[str, Number | None] = {}
    unknown: dict[str, str] = {}

    def tell(name: str, value: Number | None, reason: str) -> None:
        values[name] = value
        if value is None:
            unknown[name] = phrase(f"check.lacks.{reason}") if reason in _LACKS else reason

    has_history = side.at_event is not None
    for curve in ("reserved", "allocated", "active", "requested"):
        highest = max(int(device.usage[curve].max(initial=-1)), device.start[curve])
        silent = phrase("check.lacks.curve", curve=vocabulary.name("curve", curve))
        tell(f"peak_{curve}", highest if has_history and highest >= 0 else None, silent if has_history else _NO_HISTORY)
    peak = values["peak_reserved"] if values["peak_reserved"] is not None else values["peak_allocated"]
    tell("peak", peak, unknown.get("peak_allocated", ""))
    end = device.end
    for curve in ("reserved", "allocated"):
        tell(
            f"end_{curve}",
            end[curve] if end[curve] >= 0 else None,
            phrase("check.lacks.end", curve=vocabulary.name("curve", curve)),
        )
    for part in ("rounding", "pending", "stranded", "foreign", "cache"):
        tell(part, getattr(side.split, f"{part}_bytes"), _NO_PLACES)
    for name, key in (("retries", "num_retries"), ("ooms", "num_ooms")):
        tell(name, side.counts.get(key), _NO_CALLS)
    obtained = side.counts.get("num_segments_allocated")
    rate = round(obtained / side.num_steps, 2) if obtained is not None and side.num_steps else None
    tell("device_allocs_per_step", rate, _NO_CALLS if obtained is None else _NO_STEPS)
    tell("leak_per_step", *_growth(report, side.num_steps))
    levels = [finding.severity for finding in report.findings]
    tell("critical", levels.count("critical"), "")
    tell("warnings", levels.count("critical") + levels.count("warning"), "")
    for finding in report.findings:
        values[finding.code] = (values.get(finding.code) or 0) + 1
    for code, reason in _cannot_be_found(device.has_addresses, has_history):
        if code not in values:
            tell(code, None, reason)
    return Measured(
        values, unknown, side.usage.reserved_bytes, device.capacity_bytes, side.split.reference_request_bytes
    )


def _growth(report: Report, num_steps: int | None) -> tuple[Number | None, str]:
    """Returns the growth in bytes per step, and why it is unknown."""
    found = {finding.code: finding for finding in report.findings}
    if "MD301" in found:
        grown = next((item.value for item in found["MD301"].evidence if item.unit == "bytes/step"), None)
        return (grown, "") if isinstance(grown, int | float) else (None, phrase("check.lacks.growth"))
    if num_steps is None:
        return None, _NO_STEPS
    if "MD302" in found or num_steps < _ENOUGH_STEPS:
        return None, phrase("check.lacks.few", count=num_steps, least=_ENOUGH_STEPS)
    return 0, ""


def in_words(value: Number, unit: Unit) -> str:
    """Returns a value with its unit: ``1.50 GiB``, ``3``, ``2.00 MiB per step``."""
    if unit.startswith("bytes"):
        shown = format_bytes(round(value))
    else:
        shown = format_count(value) if isinstance(value, int) else f"{value:,.2f}".rstrip("0").rstrip(".")
    return phrase("check.per_step", value=shown) if unit.endswith("/step") else shown


def _cannot_be_found(has_addresses: bool, has_history: bool) -> Iterator[tuple[str, str]]:
    """Yields the finding codes that a file can never show, with the reason: their absence means nothing."""
    reasons: dict[str, str] = {}
    if not has_addresses:
        reasons = {"MD2": _NO_PLACES, "MD4": _NO_CALLS}  # addresses; driver requests
    if not has_history:
        reasons |= dict.fromkeys(("MD1", "MD3", "MD4"), _NO_HISTORY)  # lifetimes, growth, churn
    for _, codes in ANALYZERS.attempts(lambda analyzer: analyzer.CODES):
        yield from ((code, reasons[code[:3]]) for code in codes if code[:3] in reasons)
