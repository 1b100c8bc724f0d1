"""The report of ``memdiag fleet``, built after all ranks have been read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memdiag.results.finding import SCHEMA_VERSION, Fix
from memdiag.results.tune import TuneReport


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank.

    Attributes:
        rank: Its number; ``file`` is the file it was read from.
        group: Number of its group of equally loaded ranks.
        device: Index of the analyzed device: of several in one file, the one with the least headroom; None if the file
            has none.
        capacity_bytes: Capacity of the device, or None if unknown.
        peak_reserved_bytes, peak_allocated_bytes: Peaks, or None if unknown.
        headroom_bytes: Bytes left at the reserved peak; negative if a request failed, by the bytes it lacked; None if
            unknown.
        ran_out: Whether a request failed.
        failed: Facts of the last failed request: request_bytes, step, phase, …
        step, phase: Step and phase of the reserved peak.
        unused_bytes: Part of the reserved peak that was never in use at the same time: cached or fragmented.
        headline: The verdict on this rank alone.
        by_category: Bytes by category at the moment of the report.
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
        """The reserved peak, else the allocated peak, else 0 if neither is known."""
        return self.peak_reserved_bytes or self.peak_allocated_bytes or 0


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """Memory that one rank holds more of than another (less, if negative) at the allocated peak.

    Attributes:
        kind: Category of the tensors, or "unused" for reserved memory that is not in use.
        part: Part of the model or call site; "" for unused memory.
        delta_bytes: Bytes here minus bytes there.
        num_here, num_there, bytes_here, bytes_there: Tensors and bytes of both ranks.
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
    """Outlier ranks: they need more or less memory than ranks with the same model shard, all for one cause.

    Attributes:
        ranks: Their numbers; ``rank`` is the one that differs most, which the numbers describe.
        against: The rank it is compared with: the median rank of its group.
        curve: "reserved" or "allocated": the peak that is unusual.
        delta_bytes: Peak of ``rank`` minus that of ``against``.
        cause: "model", "more", "larger", "data", "experts", "communication", "unused", "ended" (the trace stops
            earlier) or "unknown".
        why: The cause, in words with numbers.
        differences: Components of the difference, largest first.
        places: The call sites that differ most: (site, additional bytes).
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
    """Ranks with the same part of the model and the same number of live activations, usually a pipeline stage.

    Attributes:
        number: Number of the group, from 0, in order of its lowest rank.
        label: Contents that distinguish it from other groups, in words.
        ranks: Its ranks.
        middle: The rank with the median peak.
        low_bytes, middle_bytes, high_bytes: Lowest, median and highest peak.
        parameter_bytes: Bytes of parameters in its median rank.
        num_activations: Activation tensors that are live at the same time in its median rank.
        against: The group with the most ranks, or None if this is it.
        why: How its median rank differs from that group's median rank, in words; "" if it does not.
        differences: Components of that difference.
        apart: How the rank with the highest peak differs from the one with the lowest, in words; "" if they do not
            differ.
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
    """A finding of several ranks: one code, one call site.

    Title and fixes are taken from the rank with the most bytes.
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
    """Ranks whose peak is in [low, high)."""

    low_bytes: int
    high_bytes: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Bytes by rank and step (or part of the trace).

    Attributes:
        what: "reserved" or "allocated".
        along: "step", or "trace" for equal parts of each trace if there are no steps.
        columns: Column names.
        ranks: One rank for each row.
        rows: Highest bytes in each column, or None if the rank has no data there.
    """

    what: str
    along: str
    columns: tuple[str, ...]
    ranks: tuple[int, ...]
    rows: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that could not be read; ``rank`` is inferred from its name."""

    file: str
    rank: int | None
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """A settings line, replayed on every rank.

    Attributes:
        num_ranks: Number of ranks that could be replayed.
        failing_before, failing_after: Ranks in which a request fails with the recorded settings, and with these.
        peak_before_bytes, peak_after_bytes: The highest reserved peak of all ranks.
        rank_after: The rank with that peak.
        worse: Ranks that need more than before (by more than the calibration error).
        not_replayed: Ranks that could not be replayed.
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
    """The report of ``memdiag fleet``.

    Attributes:
        verdict: Sentences, the most important first.
        ranks: In order of their numbers.
        world: Number of ranks of the job according to the recordings, or None if unknown.
        backends: Backends they were recorded on.
        notes: Other remarks: duplicate rank numbers, differing settings, missing ranks.
        num_kept: Number of results reused from an earlier run.
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
