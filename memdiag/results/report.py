"""The report of ``memdiag analyze``: the source, each device, findings, replayed remedies and the card on top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from memdiag.results.finding import SCHEMA_VERSION, Finding, Note, Severity


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes at one event of one device, after it. None where the source cannot know."""

    reserved_bytes: int | None
    allocated_bytes: int | None
    active_bytes: int | None
    requested_bytes: int | None


@dataclass(frozen=True, slots=True)
class Peak(Usage):
    """The highest point of a curve: the first event that reaches it (-1: it stood there before the trace began)."""

    at_event: int | None = None
    at_us: int | None = None
    phase: str | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ReportMoment(Peak):
    """The moment of a report: lists, split and findings are of this one, unless they name another.

    Attributes:
        kind: "oom", "peak", "allocated", "reserved", "end", "event" or "snapshot", see ``memdiag.trace.moments``.
        lost_bytes: Free bytes that the reference request cannot use; None where that is unknown.
    """

    kind: str = "peak"
    lost_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The split of reserved - requested at one event, seen from a reference request (docs/fragmentation.md)."""

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
        """Free bytes that the reference request cannot use, the loss to fragmentation; None where that is unknown."""
        return (
            None
            if self.stranded_bytes is None or self.foreign_bytes is None
            else self.stranded_bytes + self.foreign_bytes
        )


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the code and what it holds live at the moment of the report; ``names`` are those of its largest tensors."""

    bytes: int
    num_tensors: int
    stack: tuple[str, ...]
    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleUsage:
    """A part of the model and what it holds at the moment looked at: ``share`` of all that is live then."""

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
    """The card of a recording, and the room that the allocator had on it.

    Attributes:
        capacity_bytes: All memory of the card; None: unknown.
        room_bytes: What the allocator could hold of it; None: unknown, and nothing was refused.
        outside_bytes: What lay outside the allocator (context, buffers of NCCL or HCCL, other processes) at most; None:
            unknown.
        outside_basis: "recorded" (the driver was asked), "refused" (refused requests show it), "given" (by the user); "": unknown, and
            none is assumed.
        at_start_bytes, at_peak_bytes, at_end_bytes: Outside the allocator when the device was first seen in use, when the allocator held
            most, and at the end; None: not recorded.
        fraction: The share of the card that the process may use; None: unknown.
        notes: What had to be assumed.
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
    """What is said of one device, apart from findings."""

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
    """What a replay of the trace under changed settings gives.

    Attributes:
        device: Index of the device.
        change: The line to paste.
        codes: Findings of which it is a remedy; of several lines in one ("combination") all of theirs.
        is_combination: All remedies by settings together.
        peak_reserved_bytes: Predicted.
        saved_bytes: Recorded reserved peak - predicted one; negative: it would be higher. Of a trace that does not
            begin at the start
            less: cached memory of an earlier time is no merit of other settings.
        error_bytes: By how much that may be off: what a replay of the recorded settings is off.
        num_ooms: Requests that fail; ``recorded_ooms`` is how many did.
        calibration: How exactly the recorded settings reproduce the recording, in words.
        repro: The command that shows more.
        num_retries: Requests for which all cached memory is released first.
        num_driver_calls: Segments reserved and released.
        rejected: Why the replay shows that this is no remedy; "" if it is one.
        begins_late: Tensors were allocated before the first event; the replay places them anew, so the result is a
            guess.
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
        """Whether it is a remedy."""
        return not self.rejected

    @property
    def is_shown(self) -> bool:
        """Whether it deserves a row: it helps, or a finding suggested it."""
        return self.is_offered or bool(self.codes)

    @property
    def conf(self) -> str:
        """The settings that ``change`` makes, without the variable; "" for none."""
        return self.change.partition("=")[2]

    @property
    def baseline_bytes(self) -> int:
        """The reserved peak that ``saved_bytes`` is measured from."""
        return self.peak_reserved_bytes + self.saved_bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """The card that every form of a report starts with. Renderers draw it and compute nothing.

    Attributes:
        severity: The worst one of the findings; "ok" without any above info.
        happened: What happened, in one or two sentences.
        device: The device that it is about; None: the file has none.
        loss_bytes: Free bytes that the request at the moment of the report cannot use; None: unknown.
        loss: The same in words.
        remedy: The first thing to do.
        command: The line to paste for it; "": there is none.
        code: The finding that it is from; "": none.
        peak_bytes: Reserved peak that the prediction is compared with; None: nothing was predicted.
        predicted_peak_bytes: Reserved peak with the remedy; None: nothing was predicted.
        fits: Whether the run fits with the remedy; None: unknown, or the recorded run failed and the remedy gets past
            that.
        prediction: What the remedy gives, in words.
        calibration: How exactly the recorded settings reproduce the recording, or why there is no prediction.
        fits_basis: On what ``fits`` rests (REPLAY, PAST_FAILURE, RECORDED_PART, WHOLE_RUN); None: nothing was
            predicted.
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
    """Whether the allocator can serve a tensor at the moment of a report; sizes are in bytes, None: unknown.

    Attributes:
        request_bytes: ``requested_bytes``, rounded as the recorded settings do.
        answer: From cache, with a new segment, with one after a retry (cached memory is released first), not at all, or
            unknown.
        text, details: The answer in words, and the facts that it rests on.
        free_bytes, num_free, largest_free_bytes: Free blocks of the pool and stream ``pool``.
        missing_in_block_bytes: By how much the largest of them is too small.
        range_bytes, between_bytes, num_between, between: The range of that length that holds the fewest live bytes, and those tensors.
        new_segment_bytes, driver_free_bytes: What the driver must give, and what it has left (at most, where that was
        not recorded).
        released_bytes: What a retry gives back; ``missing_bytes``: what the driver has too little even then.
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
    """Where a trace came from and how complete it is."""

    path: str
    format: str
    backend: str | None
    torch_version: str | None
    phantom: bool
    num_events: int
    num_tensors: int
    complete_from_start: bool | None
    bases: Mapping[str, str] = field(default_factory=dict)  # phase, step, category, lifetime: on what evidence


# Ends the basis of lifetimes of which some were inferred from the same call site in earlier steps:
# "marks+earlier_steps".
EARLIER_STEPS = "+earlier_steps"


@dataclass(frozen=True, slots=True)
class Report:
    """A whole diagnosis."""

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
