"""The report of ``memdiag analyze``: the source, each device, findings, replayed remedies and the card on top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from memdiag.registry import in_notebook
from memdiag.results.card_ledger import CardMoment
from memdiag.results.finding import Finding, Note, Severity
from memdiag.results.host import HostReport
from memdiag.results.libraries import LibraryMemory
from memdiag.results.sites import ModuleUsage, Site
from memdiag.results.would_fit import WouldFit


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory of a device after an event.

    Attributes:
        reserved_bytes: Bytes reserved by the allocator, or None if unknown.
        allocated_bytes: Bytes of blocks allocated to tensors, or None if unknown.
        active_bytes: Bytes of blocks that are allocated, or freed but still waiting for a stream; None if unknown.
        requested_bytes: Bytes that the live tensors requested, or None if unknown.
    """

    reserved_bytes: int | None
    allocated_bytes: int | None
    active_bytes: int | None
    requested_bytes: int | None


@dataclass(frozen=True, slots=True)
class Peak(Usage):
    """The highest point of a curve: the first event that reaches it.

    Attributes:
        at_event: The event (-1: before the trace began), or None if the file has no events.
        at_us: Time of the event in microseconds, or None if unknown.
        phase: Phase of the training step, or None if unknown.
        step: Training step from 0, or None if unknown.
    """

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
    """The split of reserved - requested at one event, relative to a reference request (docs/fragmentation.md).

    Attributes:
        at_event: The event, or None if the file has only one state.
        reference_request_bytes: Size of the reference request, rounded; None if unknown.
        reference_kind: "this request", "next request", "last request", "largest request", "largest live" or None.
        rounding_bytes: Bytes lost to rounding of sizes, or None if unknown.
        pending_bytes: Freed bytes that wait for a stream, or None if unknown.
        stranded_bytes: Free bytes in blocks too small for the reference request, or None if unknown.
        foreign_bytes: Free bytes in other pools and streams, or None if unknown.
        cache_bytes: Free bytes that the reference request can use, or None if unknown.
        largest_free_bytes: Largest free range in the pool and stream of the reference request, or None if unknown.
    """

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
        usable_bytes: Memory that the allocator could reserve, or None if unknown because no request failed.
        outside_bytes: Peak of memory outside the allocator (context, buffers of NCCL or HCCL, other processes), or None
            if unknown.
        outside_error_bytes: For a simulated device: by how much the memory outside the allocator may differ on a real
            card; 0: not simulated, or unknown.
        outside_basis: "recorded" (from the driver), "refused" (inferred from failed requests), "given" (by the user),
            or "" if unknown and assumed to be zero.
        outside_at_start_bytes: Memory outside the allocator at the first use of the device, or None if not recorded.
        outside_at_peak_bytes: Memory outside the allocator at the reserved peak, or None if not recorded.
        outside_at_end_bytes: Memory outside the allocator at the end, or None if not recorded.
        memory_fraction: Per-process memory fraction, or None if unknown.
        notes: Assumptions.
        library_bytes: Part of the memory outside the allocator that communication libraries hold at the end of their
            logs, or None without a log.
    """

    capacity_bytes: int | None = None
    usable_bytes: int | None = None
    outside_bytes: int | None = None
    outside_basis: str = ""
    outside_at_start_bytes: int | None = None
    outside_at_peak_bytes: int | None = None
    outside_at_end_bytes: int | None = None
    memory_fraction: float | None = None
    notes: tuple[str, ...] = ()
    outside_error_bytes: int = 0
    library_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """The results for one device, except findings.

    Attributes:
        device: Index of the device.
        end: Memory after the last event.
        peak: The reserved peak.
        peak_allocated: The allocated peak.
        fragmentation: What reserved - requested bytes consist of at the moment of the report.
        counts: Numbers of segments reserved and released, of retries and of failed requests; None if unknown.
        by_category: Live bytes by category of tensors at the moment of the report, or None if unknown.
        by_lifetime: Live bytes by lifetime at the moment of the report, or None if unknown.
        top_sites: Call sites that hold most at the moment of the report, or None if unknown.
        timeline: Curves for drawing.
        moment: The moment of the report.
        by_module: Parts of the model that hold most at the moment of the report, or None if no names are known.
        card: The memory of the device and what is outside the allocator.
        card_timeline: Who held the memory of the card over time, from samples of the recording; empty without samples.
        by_label: Notes of the program about its tensors (``_set_memory_metadata``, ``_annotate_tensor``) with most
            bytes at the moment of the report, or None if there are none.
        by_compiled_region: Regions of compiled code whose tensors hold most at the moment of the report, or None if
            none is known.
    """

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
    card_timeline: tuple[CardMoment, ...] = ()
    by_label: tuple[ModuleUsage, ...] | None = None
    by_compiled_region: tuple[ModuleUsage, ...] | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Result of replaying the trace with changed settings.

    Attributes:
        device: Index of the device.
        change: The line to paste.
        codes: Codes of the findings that this change remedies; a combination of several settings has the codes of all
            of them.
        is_combination: Whether this change combines all remedies that are settings.
        peak_reserved_bytes: Predicted reserved peak.
        saved_bytes: Recorded reserved peak minus predicted reserved peak; negative if the prediction is higher. For a
            trace that begins after the start of the program, the saving is smaller, because memory cached before the
            trace does not count as saved.
        calibration_error_bytes: Calibration error; the prediction carries the same error.
        num_ooms: Requests that fail in the replay.
        num_recorded_ooms: Requests that failed in the recording.
        calibration: How exactly the recorded settings reproduce the recording, in words.
        repro: The command that shows details.
        num_retries: Requests for which all cached memory is released first.
        num_driver_calls: Segments reserved and released.
        rejection_reason: Why the replay shows that this is not a remedy, or "" if it is one.
        starts_with_live_tensors: Whether tensors were allocated before the first event; the replay chooses their
            addresses, so the result is approximate.
        is_rest_too_large: Whether memory ran out, and the rest of the step probably needs more than the device has
            (estimated from the state of the model, from an earlier step, or from the growth of a first forward pass).
            To get past the recorded failure is then no solution.
    """

    device: int
    change: str
    codes: tuple[str, ...]
    is_combination: bool
    peak_reserved_bytes: int
    saved_bytes: int
    calibration_error_bytes: int
    num_ooms: int
    num_recorded_ooms: int
    calibration: str
    repro: str
    num_retries: int = 0
    num_driver_calls: int = 0
    rejection_reason: str = ""
    starts_with_live_tensors: bool = False
    is_rest_too_large: bool = False

    @property
    def is_offered(self) -> bool:
        """True if it is offered as a remedy."""
        return not self.rejection_reason

    @property
    def is_shown(self) -> bool:
        """True if it gets a row: it helps, or a finding suggested it."""
        return self.is_offered or bool(self.codes)

    @property
    def conf(self) -> str:
        """The settings in ``change`` without the variable, or "" if there are none."""
        return self.change.partition("=")[2].rstrip('"')  # a line for Windows may be quoted: set "A=b"

    @property
    def baseline_bytes(self) -> int:
        """The reserved peak that ``saved_bytes`` is measured from."""
        return self.peak_reserved_bytes + self.saved_bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """The card at the top of every form of a report. Renderers draw it and compute nothing.

    Attributes:
        severity: The worst severity of the findings, or "ok" if none is above info.
        summary: What happened, in one or two sentences.
        device: Device that the verdict is about, or None if the file has none.
        lost_bytes: Free bytes that the request at the moment of the report cannot use, or None if unknown.
        loss: ``lost_bytes`` in words.
        remedy: The first thing to do.
        command: The line to paste for the remedy, or "" if there is none.
        code: Code of the finding that suggests the remedy, or "" if none.
        peak_reserved_bytes: Reserved peak that the prediction is compared with, or None without a prediction.
        predicted_peak_reserved_bytes: Reserved peak with the remedy, or None without a prediction.
        fits: Whether the run fits with the remedy, or None if unknown or if the remedy only gets past the recorded
            failure.
        prediction: The predicted effect of the remedy, in words.
        calibration: How exactly the recorded settings reproduce the recording, or why there is no prediction.
        fits_basis: Basis of ``fits`` (REPLAY, PAST_FAILURE, RECORDED_PART, WHOLE_RUN), or None without a prediction.
        assumed: What the peak depends on, in words, if a simulated device does not know sizes or the load of experts;
            otherwise "".
    """

    severity: Severity | Literal["ok"]
    summary: str
    device: int | None = None
    lost_bytes: int | None = None
    loss: str = ""
    remedy: str = ""
    command: str = ""
    code: str = ""
    peak_reserved_bytes: int | None = None
    predicted_peak_reserved_bytes: int | None = None
    fits: bool | None = None
    prediction: str = ""
    calibration: str = ""
    fits_basis: str | None = None
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class TraceSource:
    """Origin of a trace, and how complete it is.

    Attributes:
        path: The file that was read.
        format: Format of the file: "torch-snapshot", "chrome-trace", "ascend-csv", …
        backend: "cuda", "npu", "xpu" or "cpu", or None if unknown.
        torch_version: Version of PyTorch; a guess ends in "?"; None if unknown.
        is_phantom: Whether the trace was recorded on a simulated device.
        num_events: Number of events on all devices.
        num_tensors: Number of tensors, including those allocated before the trace begins.
        complete_from_start: Whether the trace begins with an empty allocator, or None if unknown.
        bases: Evidence for "phase", "step", "category" and "lifetime": "marks", "annotations", "stacks",
            "annotations+stacks", "periodicity" or "none". "+earlier_steps" is appended if some lifetimes were inferred
            from earlier steps.
    """

    path: str
    format: str
    backend: str | None
    torch_version: str | None
    is_phantom: bool
    num_events: int
    num_tensors: int
    complete_from_start: bool | None
    bases: Mapping[str, str] = field(default_factory=dict)


# Suffix of the basis of lifetimes ("marks+earlier_steps") if some were inferred from the same call site in earlier
# steps.
EARLIER_STEPS = "+earlier_steps"


@dataclass(frozen=True, slots=True)
class Report:
    """The report of ``memdiag analyze``.

    Attributes:
        source: Origin of the trace.
        devices: Results by device.
        settings: Allocator settings as the file has them; empty if it has none.
        findings: Findings, ordered by severity and then by the bytes that they are about.
        notes: Limits of the diagnosis.
        headline: The verdict in one sentence.
        what_if: Remedies that are settings, replayed on the trace; empty if nothing was replayed.
        verdict: The card that every form of the report starts with.
        would_fit: For each device, whether a tensor of a given size would fit (``--would-fit``).
        libraries: Memory that communication libraries hold outside the allocator; only if a log of the library was
            given.
        host: Memory of the host, or None if the file records none.
    """

    source: TraceSource
    devices: tuple[DeviceReport, ...]
    settings: dict[str, object]
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    headline: str = ""
    what_if: tuple[WhatIf, ...] = ()
    verdict: Verdict | None = None
    would_fit: tuple[WouldFit, ...] = ()
    libraries: tuple[LibraryMemory, ...] = ()
    host: HostReport | None = None

    def _repr_html_(self) -> str:
        """Returns this result for a notebook."""
        return in_notebook(self)
