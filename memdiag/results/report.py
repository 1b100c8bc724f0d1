"""The report of ``memdiag analyze``: the source, each device, findings, replayed remedies and the card on top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from memdiag.results.finding import SCHEMA_VERSION, Finding, Note, Severity


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes at one event of one device, after it. A value is None if the source cannot provide it."""

    reserved_bytes: int | None
    allocated_bytes: int | None
    active_bytes: int | None
    requested_bytes: int | None


@dataclass(frozen=True, slots=True)
class Peak(Usage):
    """The highest point of a curve: the first event that reaches it (-1: before the trace began)."""

    at_event: int | None = None
    at_us: int | None = None
    phase: str | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ReportMoment(Peak):
    """The moment of a report: lists, split and findings refer to it unless they name another one.

    Attributes:
        kind: "oom", "peak", "allocated", "reserved", "end", "event" or "snapshot", see ``memdiag.trace.moments``.
        lost_bytes: Free bytes that the reference request cannot use, or None if unknown.
    """

    kind: str = "peak"
    lost_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The split of reserved - requested at one event, relative to a reference request (docs/fragmentation.md)."""

    at_event: int | None
    reference_request_bytes: int | None
    reference_kind: str | None
    rounding_bytes: int | None
    pending_bytes: int | None
    stranded_bytes: int | None
    foreign_bytes: int | None
    cache_bytes: int | None
    largest_free_bytes: int | None

    @property
    def lost_bytes(self) -> int | None:
        """The loss to fragmentation: free bytes that the reference request cannot use, or None if unknown."""
        return (
            None
            if self.stranded_bytes is None or self.foreign_bytes is None
            else self.stranded_bytes + self.foreign_bytes
        )


@dataclass(frozen=True, slots=True)
class Site:
    """A call site and its live memory at the moment of the report; ``names`` are those of its largest tensors."""

    bytes: int
    num_tensors: int
    stack: tuple[str, ...]
    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleUsage:
    """A part of the model and its memory at the moment of the report; ``share`` is its fraction of all live bytes."""

    name: str
    bytes: int
    share: float
    num_tensors: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Curves for drawing: each list has one value per bucket of events (the highest in the bucket)."""

    events_per_bucket: float
    reserved: tuple[int, ...]
    active: tuple[int, ...]
    allocated: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CardReport:
    """The memory of the device, and the room that the allocator had on it.

    Attributes:
        capacity_bytes: Total memory of the device, or None if unknown.
        room_bytes: Memory that the allocator could reserve, or None if unknown because no request failed.
        outside_bytes: Peak of memory outside the allocator (context, buffers of NCCL or HCCL, other processes), or None
            if unknown.
        outside_basis: "recorded" (from the driver), "refused" (inferred from failed requests), "given" (by the user),
            or "" if unknown and none is assumed.
        at_start_bytes, at_peak_bytes, at_end_bytes: Memory outside the allocator at the first use of the device, at the
            reserved peak, and at the end; None if not recorded.
        fraction: Per-process memory fraction, or None if unknown.
        notes: Assumptions.
    """

    capacity_bytes: int | None = None
    room_bytes: int | None = None
    outside_bytes: int | None = None
    outside_basis: str = ""
    at_start_bytes: int | None = None
    at_peak_bytes: int | None = None
    at_end_bytes: int | None = None
    fraction: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """The results for one device, except findings."""

    device: int
    end: Usage
    peak: Peak
    peak_allocated: Peak
    fragmentation: Fragmentation
    counts: dict[str, int | None]
    by_category: dict[str, int] | None
    by_lifetime: dict[str, int] | None
    top_sites: tuple[Site, ...] | None
    timeline: Timeline | None = None
    moment: ReportMoment | None = None
    by_module: tuple[ModuleUsage, ...] | None = None
    card: CardReport | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Result of replaying the trace with changed settings.

    Attributes:
        device: Index of the device.
        change: The line to paste.
        codes: Findings that it remedies; a combination of several settings has the codes of all of them.
        is_combination: Whether it combines all remedies that are settings.
        peak_reserved_bytes: Predicted reserved peak.
        saved_bytes: Recorded reserved peak - predicted one; negative if the prediction is higher. For a trace that does
            not begin at the start it is smaller, since memory cached before the trace is not a merit of other settings.
        error_bytes: Calibration error, which the prediction carries too.
        num_ooms: Requests that fail; ``recorded_ooms`` is the recorded number.
        calibration: How exactly the recorded settings reproduce the recording, in words.
        repro: The command that shows details.
        num_retries: Requests for which all cached memory is released first.
        num_driver_calls: Segments reserved and released.
        rejected: Why the replay shows that this is not a remedy, or "" if it is one.
        begins_late: Whether tensors were allocated before the first event; the replay chooses their addresses, so the
            result is approximate.
    """

    device: int
    change: str
    codes: tuple[str, ...]
    is_combination: bool
    peak_reserved_bytes: int
    saved_bytes: int
    error_bytes: int
    num_ooms: int
    recorded_ooms: int
    calibration: str
    repro: str
    num_retries: int = 0
    num_driver_calls: int = 0
    rejected: str = ""
    begins_late: bool = False

    @property
    def is_offered(self) -> bool:
        """True if it is offered as a remedy."""
        return not self.rejected

    @property
    def is_shown(self) -> bool:
        """True if it gets a row: it helps, or a finding suggested it."""
        return self.is_offered or bool(self.codes)

    @property
    def conf(self) -> str:
        """The settings in ``change`` without the variable, or "" if there are none."""
        return self.change.partition("=")[2]

    @property
    def baseline_bytes(self) -> int:
        """The reserved peak that ``saved_bytes`` is measured from."""
        return self.peak_reserved_bytes + self.saved_bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """The card at the top of every form of a report. Renderers draw it and compute nothing.

    Attributes:
        severity: The worst severity of the findings, or "ok" if none is above info.
        happened: What happened, in one or two sentences.
        device: Its device, or None if the file has none.
        loss_bytes: Free bytes that the request at the moment of the report cannot use, or None if unknown.
        loss: The same in words.
        remedy: The first thing to do.
        command: The line to paste for it, or "" if there is none.
        code: The finding it comes from, or "" if none.
        peak_bytes: Reserved peak that the prediction is compared with, or None without a prediction.
        predicted_peak_bytes: Reserved peak with the remedy, or None without a prediction.
        fits: Whether the run fits with the remedy, or None if unknown or if the remedy only gets past the recorded
            failure.
        prediction: The predicted effect of the remedy, in words.
        calibration: How exactly the recorded settings reproduce the recording, or why there is no prediction.
        fits_basis: Basis of ``fits`` (REPLAY, PAST_FAILURE, RECORDED_PART, WHOLE_RUN), or None without a prediction.
    """

    severity: Severity | Literal["ok"]
    happened: str
    device: int | None = None
    loss_bytes: int | None = None
    loss: str = ""
    remedy: str = ""
    command: str = ""
    code: str = ""
    peak_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    fits: bool | None = None
    prediction: str = ""
    calibration: str = ""
    fits_basis: str | None = None


FitAnswer = Literal["cache", "segment", "retry", "no", "unknown"]


@dataclass(frozen=True, slots=True)
class WouldFit:
    """The answer whether the allocator can serve a request at the moment of a report.

    Sizes are in bytes, or None if unknown.

    Attributes:
        request_bytes: ``requested_bytes``, rounded according to the recorded settings.
        answer: Served from cache, with a new segment, with a new segment after a retry (which releases cached memory),
            not at all, or unknown.
        text, details: The answer in words, and the facts it is based on.
        free_bytes, num_free, largest_free_bytes: Free blocks of the pool and stream ``pool``.
        missing_in_block_bytes: Bytes that the largest free block lacks.
        range_bytes, between_bytes, num_between, between: The address range of that length with the fewest live bytes,
            and its live tensors.
        new_segment_bytes, driver_free_bytes: Bytes that the driver must provide, and bytes it has left (an upper bound
            if that was not recorded).
        released_bytes: Bytes that a retry releases; ``missing_bytes`` are the bytes that the driver lacks even then.
    """

    device: int
    requested_bytes: int
    request_bytes: int
    at_event: int | None
    answer: FitAnswer
    text: str
    pool: str = ""
    free_bytes: int | None = None
    num_free: int | None = None
    largest_free_bytes: int | None = None
    missing_in_block_bytes: int | None = None
    range_bytes: int | None = None
    between_bytes: int | None = None
    num_between: int | None = None
    between: tuple[str, ...] = ()
    new_segment_bytes: int | None = None
    driver_free_bytes: int | None = None
    released_bytes: int | None = None
    missing_bytes: int | None = None
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of a trace, and how complete it is."""

    path: str
    format: str
    backend: str | None
    torch_version: str | None
    phantom: bool
    num_events: int
    num_tensors: int
    complete_from_start: bool | None
    bases: Mapping[str, str] = field(default_factory=dict)  # evidence for phase, step, category and lifetime


# Suffix of the basis of lifetimes, some of which were inferred from the same call site in earlier steps:
# "marks+earlier_steps".
EARLIER_STEPS = "+earlier_steps"


@dataclass(frozen=True, slots=True)
class Report:
    """The report of ``memdiag analyze``."""

    source: Source
    devices: tuple[DeviceReport, ...]
    settings: dict[str, object]
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    headline: str = ""
    what_if: tuple[WhatIf, ...] = ()
    verdict: Verdict | None = None
    would_fit: tuple[WouldFit, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)
