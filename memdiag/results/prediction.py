"""The report of ``memdiag simulate``: calibration, the recorded run and each simulated run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memdiag.results.detail import Detail
from memdiag.results.finding import Finding
from memdiag.results.outlook import Outlook
from memdiag.results.report import CardReport, Fragmentation, ReportMoment

# How far results of a policy can be trusted:
# native: PyTorch's or torch_npu's own allocator, which recordings calibrate. Only the settings choose between these, and
#     a replay can begin with the memory that was reserved when the recording began.
# checked: another allocator; tests compare the model with an independent implementation of it.
# uncalibrated: a model written from documentation alone, which nothing has been compared with.
# bound: a limit to compare with. No program can run with it.
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
        reserved_bytes, allocated_bytes: Reserved and allocated bytes at that moment.
        room_bytes: Memory that the allocator could reserve at most.
        missing_bytes: Bytes requested from the driver beyond those left.
        largest_free_bytes: Largest free block that the request could have used, or None if unknown.
    """

    at_event: int
    requested_bytes: int
    name: str
    site: str
    reserved_bytes: int
    allocated_bytes: int
    room_bytes: int | None
    missing_bytes: int | None
    largest_free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """One simulated run.

    Attributes:
        policy, conf, torch_version, capacity_bytes: Simulated settings; capacity (of the whole device) is None for no
            limit.
        room_bytes: Part of the capacity that the allocator can reserve, or None for no limit.
        num_cycles: Calls in which memory was released to the driver.
        num_undefined: Calls at and after which the real allocator fails one of its assertions.
        fits: Whether the run fits, or None if unknown because the recorded run failed at a request that succeeds here.
        outlook: Basis of that answer, with an estimate of the rest; None if not computed.
        saved_bytes: Recorded reserved peak - this one, or None if the recorded one is unknown. If the trace begins with
            live tensors and the settings differ, it is the replayed peak of the recorded settings from the same
            beginning - this one.
        error_bytes: Error of ``saved_bytes``, or None if unknown.
        is_recorded: Whether these are the settings of the recording.
        mallocs_per_step: Segments reserved from the driver per training step, or None if no steps are known.
        min_capacity_bytes: Smallest device on which it runs, or None if not requested or if there is none.
            ``min_room_bytes`` is the allocator's room on that device.
        details: What only some policies have to show.
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
    device_allocs: int
    device_frees: int
    fragmentation: Fragmentation
    saved_bytes: int | None
    num_cycles: int = 0
    num_undefined: int = 0
    error_bytes: int | None = None
    is_recorded: bool = False
    mallocs_per_step: float | None = None
    min_capacity_bytes: int | None = None
    details: tuple[Detail, ...] = ()
    standing: Standing = "native"
    outlook: Outlook | None = None
    room_bytes: int | None = None
    min_room_bytes: int | None = None
    moment: ReportMoment | None = None


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The recorded run for comparison with the simulated ones, split at ``moment``; None where unknown."""

    peak_reserved_bytes: int | None
    peak_allocated_bytes: int | None
    num_retries: int | None
    num_ooms: int | None
    device_allocs: int | None
    mallocs_per_step: float | None
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
    phantom: bool = False
    advice: Finding | None = None
    card: CardReport = field(default_factory=CardReport)
