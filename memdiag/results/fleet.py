"""The report of ``memdiag fleet``, made once all ranks have been read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memdiag.results.finding import SCHEMA_VERSION, Fix
from memdiag.results.tune import TuneReport


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank.

    Attributes:
        rank: Its number; ``file`` is where it came from.
        group: Number of the group of ranks that hold the same.
        device: The device looked at: of several in one file, the one that fares worst; None: the file holds none.
        capacity_bytes: Of the device; None: unknown.
        peak_reserved_bytes, peak_allocated_bytes: None: unknown.
        headroom_bytes: What was left at the reserved peak; below 0: what the request that failed was short of; None:
            unknown.
        ran_out: A request failed.
        failed: Of the last one: request_bytes, step, phase, …
        step, phase: Where the reserved peak is.
        unused_bytes: Of the reserved peak, what was never in use at once: cached or fragmented.
        headline: The verdict on this rank alone.
        by_category: Bytes at the moment of the report.
    """

    rank: int
    file: str
    group: int
    device: int | None
    capacity_bytes: int | None
    peak_reserved_bytes: int | None
    peak_allocated_bytes: int | None
    headroom_bytes: int | None
    ran_out: bool
    failed: Mapping[str, int | str | None] | None
    num_retries: int | None
    step: int | None
    phase: str | None
    unused_bytes: int | None
    num_events: int
    conf: str | None
    torch_version: str | None
    headline: str
    by_category: Mapping[str, int] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        """The reserved peak; where that is not known the allocated one; 0: neither is."""
        return self.peak_reserved_bytes or self.peak_allocated_bytes or 0


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """Something that one rank holds more of than another (less, where below 0), when most is allocated.

    Attributes:
        kind: Category of the tensors; "unused" for memory that is reserved beyond what is in use.
        part: Part of the model or place in the code; "" for unused memory.
        delta_bytes: Bytes here minus bytes there.
        num_here, num_there, bytes_here, bytes_there: Tensors and bytes of both.
    """

    kind: str
    part: str
    delta_bytes: int
    bytes_here: int
    bytes_there: int
    num_here: int
    num_there: int


@dataclass(frozen=True, slots=True)
class Odd:
    """Ranks that need another amount than those that hold the same, all for one cause.

    Attributes:
        ranks: Their numbers; ``rank`` is the one that differs most, to which the numbers belong.
        against: The rank it is compared with: the middle one of its group.
        curve: "reserved" or "allocated": which peak is odd.
        delta_bytes: Peak of ``rank`` minus that of ``against``.
        cause: "model", "more", "larger", "data", "experts", "communication", "unused", "ended" (the trace stops
            earlier) or "unknown".
        why: The cause, in words with numbers.
        differences: What it consists of, the largest first.
        places: The places in the code that differ most: (place, bytes more).
    """

    ranks: tuple[int, ...]
    rank: int
    against: int
    curve: str
    delta_bytes: int
    cause: str
    why: str
    differences: tuple[GroupDifference, ...]
    places: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that hold the same part of the model, and as many activations at once: a pipeline stage, as a rule.

    Attributes:
        number: From 0, in order of its lowest rank.
        label: What it holds that others do not, in words.
        ranks: Its ranks.
        middle: The rank with the median peak.
        low_bytes, middle_bytes, high_bytes: Peaks.
        parameter_bytes: Of parameters in its middle rank.
        num_activations: Tensors of activations alive at once in its middle rank.
        against: The group most ranks are in; None: this is it.
        why: How its middle rank differs from the other's, in words; "" if it does not.
        differences: What that consists of.
        apart: How the rank of the group that needs most differs from the one that needs least, in words; "" if they do
            not.
    """

    number: int
    label: str
    ranks: tuple[int, ...]
    middle: int
    low_bytes: int
    middle_bytes: int
    high_bytes: int
    parameter_bytes: int
    num_activations: int
    against: int | None = None
    why: str = ""
    differences: tuple[GroupDifference, ...] = ()
    apart: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    """A finding of several ranks: one code, one place.

    Title and fixes are those of the rank in which it is about the most bytes.
    """

    code: str
    severity: str
    title: str
    place: str
    ranks: tuple[int, ...]
    rank: int
    low_bytes: int
    high_bytes: int
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class Bin:
    """Ranks whose peak lies in [low, high)."""

    low_bytes: int
    high_bytes: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Bytes by rank and step (or part of the trace).

    Attributes:
        what: "reserved" or "allocated".
        along: "step", or "trace": equal parts of each trace, where there are no steps.
        columns: Their names.
        ranks: One for each row.
        rows: Highest bytes in each column; None: the rank has nothing there.
    """

    what: str
    along: str
    columns: tuple[str, ...]
    ranks: tuple[int, ...]
    rows: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that could not be read; ``rank`` as its name tells."""

    file: str
    rank: int | None
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """A line of settings, replayed on every rank.

    Attributes:
        num_ranks: On how many it could be.
        failing_before, failing_after: Ranks in which a request fails under the recorded settings, and under these.
        peak_before_bytes, peak_after_bytes: The highest reserved peak of all ranks.
        rank_after: Whose that is.
        worse: Ranks that need more than before (beyond the error of the replay).
        not_replayed: Ranks that could not be.
    """

    num_ranks: int
    failing_before: tuple[int, ...]
    failing_after: tuple[int, ...]
    peak_before_bytes: int
    peak_after_bytes: int
    rank_after: int | None
    worse: tuple[int, ...]
    not_replayed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tuned:
    """One setting for all ranks: searched on some of them, replayed on all."""

    ranks: tuple[int, ...]
    report: TuneReport
    checked: SettingsCheck | None = None


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The whole of it.

    Attributes:
        verdict: Sentences, the most important first.
        ranks: In order of their numbers.
        world: Ranks of the job, as recordings say; None: unknown.
        backends: What they were recorded on.
        notes: What else is to be known: ranks with one number, with other settings, that are missing.
        num_kept: How many results were there from an earlier run.
    """

    verdict: tuple[str, ...]
    ranks: tuple[Rank, ...]
    groups: tuple[RankGroup, ...]
    odd: tuple[Odd, ...]
    bins: tuple[Bin, ...]
    findings: tuple[Merged, ...]
    heat: HeatMap | None
    broken: tuple[Broken, ...]
    notes: tuple[str, ...]
    world: int | None = None
    backends: tuple[str, ...] = ()
    phantom: bool = False
    num_kept: int = 0
    tuned: Tuned | None = None
    schema_version: int = field(default=SCHEMA_VERSION)
