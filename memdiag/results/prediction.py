"""The report of ``memdiag simulate``: calibration, the recorded run and each simulated one."""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.results.finding import SCHEMA_VERSION, Finding
from memdiag.results.lifetime_pools import LifetimePools
from memdiag.results.mempools import Mempools
from memdiag.results.offloading import Offloading
from memdiag.results.outlook import Outlook
from memdiag.results.planned import PlanTold
from memdiag.results.report import CardReport, Fragmentation, ReportMoment
from memdiag.results.stitching import Stitching


@dataclass(frozen=True, slots=True)
class FirstDivergence:
    """Where the replay of the recorded settings first differs from the recording, and probably why (all in words but ``at_event``)."""

    at_event: int
    what: str
    expected: str
    got: str
    cause: str


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """How exactly the recorded settings reproduce the recording.

    Attributes:
        events: Requests and segment events compared.
        exact: Those that are as recorded; None: the file has no addresses to compare.
        num_requests, exact_requests: The requests among them.
        error_bytes: By how much a predicted peak may be off; None: unknown.
        torch_version: The version whose rules were taken.
        notes: What had to be assumed.
    """

    events: int
    exact: int | None
    exact_fraction: float | None
    first_divergence: FirstDivergence | None
    what_if_error_bytes: int | None
    num_requests: int = 0
    exact_requests: int = 0
    torch_version: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether everything compared is as recorded."""
        return self.exact is not None and self.exact == self.events


@dataclass(frozen=True, slots=True)
class FirstOom:
    """The first request that fails.

    Attributes:
        at_event: Event of the input.
        requested_bytes: What it asked for.
        name: What the tensor is called; "": not known.
        site: The line that made it; "": not known.
        reserved_bytes, allocated_bytes: Held then.
        room_bytes: What the allocator could have held at most.
        missing_bytes: What it lacked: bytes wanted from the driver beyond those left.
        largest_free_bytes: Largest free block that it could have used; None: unknown.
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
        policy, conf, torch_version, capacity_bytes: What was simulated; capacity (the whole card) None: unlimited.
        room_bytes: What the allocator could hold of that card; None: unlimited.
        num_cycles: Calls in which memory was given back to the driver.
        num_undefined: Calls at and after which the real allocator stops at an assertion of its own.
        fits: Whether the run fits; None: unknown, since the recorded one failed at a request that is served here.
        outlook: On what that rests, and what is estimated of the rest; None: not worked out.
        saved_bytes: Recorded reserved peak - this one; None: the recorded one is not known. Where the trace begins with
            tensors already
            there and the settings are others: that of the recorded settings from the same beginning - this one.
        error_bytes: By how much that may be off; None: unknown.
        is_recorded: These are the settings of the recording.
        mallocs_per_step: Ranges obtained from the driver per training step; None: no steps are known.
        min_capacity_bytes: Smallest card on which it runs; None: not asked for, or none. ``min_room_bytes``: the
            allocator's room on it.
        lifetimes: Result of lifetime-segregated pools; None: the policy has none.
        planned: How far a plan held; None: the policy makes none.
        stitching: What stitching came to; None: the policy does not stitch.
        offload: The plan for moving what is idle; None: nothing is to move.
        mempools: What pools of the program's own came to; None: the policy has none.
        moment: The moment of ``fragmentation``; its event is one of the input. None: unknown.
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
    lifetimes: LifetimePools | None = None
    stitching: Stitching | None = None
    planned: PlanTold | None = None
    offload: Offloading | None = None
    mempools: Mempools | None = None
    outlook: Outlook | None = None
    room_bytes: int | None = None
    min_room_bytes: int | None = None
    moment: ReportMoment | None = None


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The recorded run beside the simulated ones, split at ``moment``; None where the file does not tell."""

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
    """The whole of it.

    Attributes:
        path: The trace.
        device: Index of the device.
        capacity_bytes: Bytes of the card, as the file says; else the allocator's room, as its failures prove; None:
            nothing tells.
        is_capacity_known: The file says how large the card is.
        with_min_capacity: The smallest card was asked for.
        advice: Effect of lifetime-segregated pools (MD114), if they were simulated.
        card: What is known of the card beside its size.
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
    schema_version: int = field(default=SCHEMA_VERSION)
