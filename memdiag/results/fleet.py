"""The report of ``memdiag fleet``, built after all ranks have been read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memdiag.results.finding import Fix
from memdiag.results.shared_cards import SharedCard
from memdiag.results.tune import TuneReport


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank.

    Attributes:
        rank: Number of the rank.
        file: The file from which the rank was read.
        group: Number of the rank's group in ``groups``.
        device: Index of the analyzed device, the one with the least headroom in the file; None if the file has no
            device.
        capacity_bytes: Capacity of the device, or None if unknown.
        peak_reserved_bytes, peak_allocated_bytes: Reserved and allocated peak, or None if unknown.
        headroom_bytes: Bytes left at the reserved peak; negative if a request failed, by the bytes it lacked; None if
            unknown.
        is_out_of_memory: Whether a request failed.
        last_failure: The last failed request, or None if none failed.
        num_retries: Requests for which all cached memory was released first, or None if unknown.
        step: Step of the reserved peak, or None if unknown.
        phase: Phase of the reserved peak, or None if unknown.
        unused_bytes: Part of the reserved peak that was never in use at the same time as the rest: cached or
            fragmented; None if unknown.
        num_events: Number of events in the trace.
        conf: Allocator settings, or None if unknown.
        torch_version: Version of PyTorch, or None if unknown.
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
    is_out_of_memory: bool
    last_failure: Mapping[str, int | str | None] | None
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
        category: Category of the tensors, or "unused" for reserved memory that is not in use.
        part: Part of the model or call site; "" for unused memory.
        delta_bytes: Bytes of this rank minus bytes of the rank it is compared with.
        bytes: Bytes of this rank.
        reference_bytes: Bytes of the rank it is compared with.
        num_tensors: Tensors of this rank.
        reference_num_tensors: Tensors of the rank it is compared with.
    """

    category: str
    part: str
    delta_bytes: int
    bytes: int
    reference_bytes: int
    num_tensors: int
    reference_num_tensors: int


@dataclass(frozen=True, slots=True)
class SiteDifference:
    """A call site that holds more memory in one rank than in another.

    Attributes:
        site: The call site.
        delta_bytes: Bytes of this rank minus bytes of the rank it is compared with.
    """

    site: str
    delta_bytes: int


@dataclass(frozen=True, slots=True)
class Outlier:
    """Outlier ranks: they need more or less memory than ranks with the same model shard, all for one cause.

    Attributes:
        ranks: Numbers of the ranks.
        rank: The rank that differs most, which all other values describe.
        reference_rank: The rank it is compared with: the median rank of its group.
        curve: "reserved" or "allocated": the peak that is unusual.
        delta_bytes: Peak of ``rank`` minus that of ``reference_rank``.
        cause: "model", "more", "larger", "data", "experts", "communication", "unused", "ended" (the trace stops
            earlier) or "unknown".
        explanation: The cause, in words with numbers.
        differences: Components of the difference, largest first.
        sites: The call sites that differ most.
    """

    ranks: tuple[int, ...]
    rank: int
    reference_rank: int
    curve: str
    delta_bytes: int
    cause: str
    explanation: str
    differences: tuple[GroupDifference, ...]
    sites: tuple[SiteDifference, ...] = ()


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks with the same part of the model and the same number of live activations, usually a pipeline stage.

    Attributes:
        number: Number of the group, from 0, in order of its lowest rank.
        label: Contents that distinguish the group from other groups, in words.
        ranks: Ranks of the group.
        median_rank: The rank with the median peak.
        low_bytes: Lowest peak.
        median_bytes: Median peak.
        high_bytes: Highest peak.
        parameter_bytes: Bytes of parameters in its median rank.
        num_activations: Activation tensors that are live at the same time in its median rank.
        reference_group: The group with the most ranks, or None if this group has the most.
        explanation: How the median rank of this group differs from that of ``reference_group``, in words; "" if it does
            not.
        differences: Components of the difference from ``reference_group``.
        spread_explanation: How the rank with the highest peak differs from the one with the lowest, in words; "" if
            they do not differ.
    """

    number: int
    label: str
    ranks: tuple[int, ...]
    median_rank: int
    low_bytes: int
    median_bytes: int
    high_bytes: int
    parameter_bytes: int
    num_activations: int
    reference_group: int | None = None
    explanation: str = ""
    differences: tuple[GroupDifference, ...] = ()
    spread_explanation: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    """A finding of several ranks: one code, one call site.

    Attributes:
        code: Stable code ("MD201").
        severity: "critical", "warning" or "info".
        title: The problem in a few words, from the rank with the most bytes.
        site: Call site, or "" if the finding has none.
        ranks: Ranks with this finding.
        rank: The rank with the most bytes.
        low_bytes: Smallest number of bytes that the finding is about in a rank.
        high_bytes: Largest number of bytes that the finding is about in a rank.
        fixes: Remedies, from the rank with the most bytes.
    """

    code: str
    severity: str
    title: str
    site: str
    ranks: tuple[int, ...]
    rank: int
    low_bytes: int
    high_bytes: int
    fixes: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class Bin:
    """Ranks with a similar peak.

    Attributes:
        low_bytes: Lower end of the range, inclusive.
        high_bytes: Upper end of the range, exclusive.
        ranks: Ranks whose peak is in the range.
    """

    low_bytes: int
    high_bytes: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Bytes by rank and step (or part of the trace).

    Attributes:
        curve: "reserved" or "allocated".
        axis: "step", or "trace" for equal parts of each trace if there are no steps.
        columns: Column names.
        ranks: One rank for each row.
        rows: Highest bytes in each column, or None if the rank has no data there.
    """

    curve: str
    axis: str
    columns: tuple[str, ...]
    ranks: tuple[int, ...]
    rows: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that could not be read.

    Attributes:
        file: The file.
        rank: Rank inferred from the name of the file, or None if it has none.
        message: Why the file could not be read.
        hint: What to do about it.
    """

    file: str
    rank: int | None
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class SettingsCheck:
    """A settings line, replayed on every rank.

    Attributes:
        num_ranks: Number of ranks that could be replayed.
        failing_ranks_before: Ranks in which a request fails with the recorded settings.
        failing_ranks_after: Ranks in which a request fails with these settings.
        peak_before_bytes: Highest reserved peak of all ranks with the recorded settings.
        peak_after_bytes: Highest reserved peak of all ranks with these settings.
        peak_rank_after: The rank with that peak, or None if no rank could be replayed.
        worse_ranks: Ranks that need more than before (by more than the calibration error).
        not_replayed_ranks: Ranks that could not be replayed.
    """

    num_ranks: int
    failing_ranks_before: tuple[int, ...]
    failing_ranks_after: tuple[int, ...]
    peak_before_bytes: int
    peak_after_bytes: int
    peak_rank_after: int | None
    worse_ranks: tuple[int, ...]
    not_replayed_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tuned:
    """One setting for all ranks: searched on some of them, replayed on all.

    Attributes:
        ranks: Ranks on which the settings were searched.
        report: Result of the search, as in ``memdiag tune --json``.
        checked: Result of the settings on all ranks, or None if there are none to check.
    """

    ranks: tuple[int, ...]
    report: TuneReport
    checked: SettingsCheck | None = None


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The report of ``memdiag fleet``.

    Attributes:
        verdict: Sentences, the most important first.
        ranks: The ranks, ordered by number.
        world_size: Number of ranks of the job according to the recordings, or None if unknown.
        backends: Backends on which the ranks were recorded.
        is_phantom: Whether the ranks were recorded on a simulated device.
        groups: Groups of ranks with the same part of the model.
        outliers: Ranks that need more or less memory than the others of their group.
        distribution: Ranks grouped by the size of their peak.
        findings: Findings, the most severe first.
        heatmap: Bytes by rank and step, or None if no rank has any.
        unreadable: Files that could not be read.
        tuned: One setting for all ranks (``--tune``), or None.
        notes: Other remarks: duplicate rank numbers, differing settings, missing ranks.
        num_kept: Number of results reused from an earlier run.
        cards: Cards that several ranks or processes used.
    """

    verdict: tuple[str, ...]
    ranks: tuple[Rank, ...]
    groups: tuple[RankGroup, ...]
    outliers: tuple[Outlier, ...]
    distribution: tuple[Bin, ...]
    findings: tuple[Merged, ...]
    heatmap: HeatMap | None
    unreadable: tuple[UnreadableFile, ...]
    notes: tuple[str, ...]
    world_size: int | None = None
    backends: tuple[str, ...] = ()
    is_phantom: bool = False
    num_kept: int = 0
    tuned: Tuned | None = None
    cards: tuple[SharedCard, ...] = ()
