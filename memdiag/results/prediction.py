"""The report of ``memdiag simulate``: calibration, the recorded run and each simulated run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memdiag.registry import in_notebook
from memdiag.results.detail import Detail
from memdiag.results.finding import Finding
from memdiag.results.outlook import Outlook
from memdiag.results.report import CardReport, Fragmentation, ReportMoment

# How far results of a policy can be trusted: native: PyTorch's or torch_npu's own allocator, which recordings
# calibrate. Only the settings choose between these, and
#     a replay can begin with the memory that was reserved when the recording began.
# checked: another allocator; tests compare the model with an independent implementation of it.
# uncalibrated: a model written from documentation alone, without any comparison.
# bound: a bound for comparison; no program can run with it.
Standing = Literal["native", "checked", "uncalibrated", "bound"]


@dataclass(frozen=True, slots=True)
class FirstDivergence:
    """The first difference between the replay of the recorded settings and the recording, and its probable cause.

    Attributes:
        at_event: Event of the recording.
        what: What differs, in words.
        recorded: The recorded value, in words.
        replayed: The value of the replay, in words.
        cause: The probable cause, in words.
    """

    at_event: int
    what: str
    recorded: str
    replayed: str
    cause: str


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """How exactly the recorded settings reproduce the recording.

    Attributes:
        num_events: Requests and segment events compared.
        num_exact: Number of those that match the recording, or None if the file has no addresses to compare.
        exact_fraction: Fraction of those that match the recording, or None if the file has no addresses to compare.
        first_divergence: The first difference, or None if there is none.
        calibration_error_bytes: Largest error of a predicted peak, or None if unknown.
        num_requests: Requests among the compared events.
        num_exact_requests: Requests among the matching events.
        torch_version: The version whose rules were applied.
        notes: Assumptions.
    """

    num_events: int
    num_exact: int | None
    exact_fraction: float | None
    first_divergence: FirstDivergence | None
    calibration_error_bytes: int | None
    num_requests: int = 0
    num_exact_requests: int = 0
    torch_version: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """True if every compared event matches the recording."""
        return self.num_exact is not None and self.num_exact == self.num_events


@dataclass(frozen=True, slots=True)
class FirstOom:
    """The first request that fails.

    Attributes:
        at_event: Event of the input.
        requested_bytes: Requested bytes.
        name: Name of the tensor, or "" if unknown.
        site: Line that allocated it, or "" if unknown.
        reserved_bytes: Reserved bytes at that moment.
        allocated_bytes: Allocated bytes at that moment.
        usable_bytes: Bytes that the allocator can use at most, or None for no limit.
        shortfall_bytes: Bytes by which the request to the driver exceeds the memory that is left, or None if unknown.
        largest_free_bytes: Largest free block that the request could have used, or None if unknown.
    """

    at_event: int
    requested_bytes: int
    name: str
    site: str
    reserved_bytes: int
    allocated_bytes: int
    usable_bytes: int | None
    shortfall_bytes: int | None
    largest_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """One simulated run.

    Attributes:
        policy: The simulated allocator.
        conf: Settings of the simulated allocator.
        torch_version: Version of PyTorch or torch_npu whose rules were applied.
        capacity_bytes: Memory of the simulated card, or None for no limit.
        peak_reserved_bytes: Reserved peak.
        peak_allocated_bytes: Allocated peak.
        peak_requested_bytes: Peak of requested bytes.
        num_retries: Requests for which all cached memory is released first.
        num_ooms: Requests that fail.
        first_oom: The first request that fails, or None if none does.
        num_device_allocs: Segments (or pages of expandable segments) reserved.
        num_device_frees: Segments (or pages of expandable segments) released.
        fragmentation: What reserved - requested bytes consist of at ``moment``.
        usable_bytes: Bytes of the card that the allocator can use, or None for no limit.
        num_release_cycles: Calls in which memory was released to the driver.
        num_calls_past_assertion: Calls at and after which the real allocator fails one of its assertions.
        fits: Whether the run fits, or None if unknown because the recorded run failed at a request that succeeds here.
        outlook: Basis of that answer, with an estimate of the rest; None if not computed.
        saved_bytes: Recorded reserved peak minus the predicted one, or None if the recorded one is unknown. If the
            trace begins with live tensors and the settings differ: the peak of the recorded settings, replayed from the
            same start, minus the predicted one.
        calibration_error_bytes: Error of ``saved_bytes``, or None if unknown.
        is_recorded: Whether these are the settings of the recording.
        device_allocs_per_step: Segments reserved from the driver per training step, or None if no steps are known.
        min_capacity_bytes: Smallest card on which the run fits, or None without ``--min-capacity`` or if no card
            suffices.
        min_usable_bytes: Bytes of that card that the allocator can use, or None as above.
        details: Details that only some policies report.
        standing: How far results of the policy can be trusted.
        moment: The moment of ``fragmentation``, an event of the input. None if unknown.
    """

    policy: str
    conf: str
    torch_version: str
    capacity_bytes: int | None
    peak_reserved_bytes: int
    peak_allocated_bytes: int
    peak_requested_bytes: int
    num_retries: int
    num_ooms: int
    first_oom: FirstOom | None
    fits: bool | None
    num_device_allocs: int
    num_device_frees: int
    fragmentation: Fragmentation
    saved_bytes: int | None
    num_release_cycles: int = 0
    num_calls_past_assertion: int = 0
    calibration_error_bytes: int | None = None
    is_recorded: bool = False
    device_allocs_per_step: float | None = None
    min_capacity_bytes: int | None = None
    details: tuple[Detail, ...] = ()
    standing: Standing = "native"
    outlook: Outlook | None = None
    usable_bytes: int | None = None
    min_usable_bytes: int | None = None
    moment: ReportMoment | None = None

    def _repr_html_(self) -> str:
        """Returns this result for a notebook."""
        return in_notebook(self)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The recorded run, for comparison with the simulated ones.

    Attributes:
        peak_reserved_bytes: Reserved peak, or None if unknown.
        peak_allocated_bytes: Allocated peak, or None if unknown.
        num_retries: Requests for which all cached memory was released first, or None if unknown.
        num_ooms: Requests that failed, or None if unknown.
        num_device_allocs: Segments (or pages of expandable segments) reserved, or None if unknown.
        device_allocs_per_step: Segments reserved from the driver per training step, or None if unknown.
        fragmentation: What reserved - requested bytes consist of at ``moment``.
        policy: The recorded allocator.
        conf: Settings of the recorded allocator, or None if unknown.
        moment: The moment of ``fragmentation``, or None if unknown.
    """

    peak_reserved_bytes: int | None
    peak_allocated_bytes: int | None
    num_retries: int | None
    num_ooms: int | None
    num_device_allocs: int | None
    device_allocs_per_step: float | None
    fragmentation: Fragmentation
    policy: str
    conf: str | None
    moment: ReportMoment | None = None


@dataclass(frozen=True, slots=True)
class PredictionReport:
    """The report of ``memdiag simulate``.

    Attributes:
        path: The trace.
        device: Index of the device.
        num_events: Number of events of the device.
        calibration: How exactly the recorded settings reproduce the recording.
        recorded: The recorded run.
        results: The simulated runs, in the order given.
        capacity_bytes: Capacity of the device from the file, else the allocator's room inferred from its failures, else
            None.
        is_capacity_known: Whether the file records the capacity.
        with_min_capacity: Whether the smallest sufficient capacity was requested.
        advice: Effect of lifetime-segregated pools (MD114), if they were simulated.
        card: Other known facts about the device memory.
    """

    path: str
    device: int
    num_events: int
    calibration: CalibrationReport
    recorded: RecordedRun
    results: tuple[Prediction, ...]
    capacity_bytes: int | None
    is_capacity_known: bool
    with_min_capacity: bool = False
    is_phantom: bool = False
    advice: Finding | None = None
    card: CardReport = field(default_factory=CardReport)
