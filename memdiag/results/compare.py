"""The report of ``memdiag compare``, stable as JSON (docs/compare.md).

Every row has one entry for each trace, in the order in which they were given. The other traces are compared with the
first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from memdiag.results.finding import SEVERITIES, Note, Severity
from memdiag.results.report import Fragmentation, Peak, Usage

# How a call site of the first trace was matched, see ``SiteRow.matched``.
How = Literal["base", "same", "path", "moved", "renamed", "words", "only here"]

Fate = Literal["same", "new", "gone", "absent", "worse", "better"]


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A call site.

    Attributes:
        label: Short name ("train.py:35 forward"); for tensors without a Python stack, why they have none.
        path: File as the trace has it; null: none.
        line: Line; null: none.
        function: Function; null: none.
    """

    label: str
    path: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True, slots=True)
class Amount:
    """Memory of some tensors at the compared moment.

    Attributes:
        bytes: Bytes of their blocks.
        num_tensors: Number of tensors.
        category: Category of most of the bytes ("activation"); null: unknown.
        lifetime: Lifetime of most of the bytes ("forward_to_backward"); null: unknown.
        mean_lifetime: Mean lifetime, weighted by bytes, of the tensors that are freed within the trace, in
            ``lifetime_unit``; null: none of them is.
        never_freed_bytes: Bytes that are not freed within the trace.
    """

    bytes: int = 0
    num_tensors: int = 0
    category: str = ""
    lifetime: str = ""
    mean_lifetime: float | None = None
    never_freed_bytes: int = 0


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class SiteHeld:
    """A call site, the memory that its tensors hold, and the names of the largest ones."""

    place: CodePlace
    amount: Amount
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedFinding:
    """A finding of one trace.

    Attributes:
        code: Stable code ("MD201").
        severity: "critical", "warning" or "info".
        title: The problem in a few words.
        device: Index of the device; null: all devices.
    """

    code: str
    severity: Severity
    title: str
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One trace of a comparison, and its compared moment.

    Attributes:
        letter: "A", "B", …
        path: The file.
        device: Index of the device.
        facts: Facts about the recording in words (backend, format, torch version, capacity, …).
        settings: Allocator settings as the file has them.
        run: Options of the command, environment and versions from the manifest of the run; empty: there is no manifest.
        num_steps: Training steps in the trace; null: unknown.
        at_event: Event of the compared moment; null: the file has only one state.
        moment: Name of the compared moment ("event 1,204 (step 3, backward)").
        moment_kind: See ``memdiag.trace.moments.ChosenMoment``.
        usage: Bytes at that moment.
        peak, peak_allocated: The peaks of both curves.
        split: What reserved - requested bytes consist of at that moment.
        counts: Segments reserved and released, retries and failed allocations; null: unknown.
        sites: Memory by call site at that moment, the largest first; None: the file has no call stacks.
        names: The same by tensor name; None: the file has no names.
        findings: Findings, the most severe first.
    """

    letter: str
    path: str
    device: int
    facts: dict[str, str]
    settings: dict[str, str]
    run: dict[str, str]
    num_steps: int | None
    at_event: int | None
    moment: str
    moment_kind: str
    usage: Usage
    peak: Peak
    peak_allocated: Peak
    split: Fragmentation
    counts: dict[str, int | None]
    sites: tuple[SiteHeld, ...] | None
    names: dict[str, Amount] | None
    findings: tuple[ComparedFinding, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """Reserved bytes at the compared moment; allocated bytes if those are unknown."""
        return self.usage.reserved_bytes if self.usage.reserved_bytes is not None else self.usage.allocated_bytes


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A call site in all traces.

    Attributes:
        places: The call site in each trace; null: it holds nothing there at that moment.
        matched: How the call site was found in each trace: "base" (the first trace), "same" (file, line and function),
            "path" (another folder), "moved" (another line), "renamed" (another function), "words" (by label), "only
            here"; null: it holds nothing.
        amounts: Memory in each trace; null: the trace has no call stacks.
        tensor_names: Names of its largest tensors.
    """

    places: tuple[CodePlace | None, ...]
    matched: tuple[How | None, ...]
    amounts: tuple[Amount | None, ...]
    tensor_names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Short name of the call site."""
        return next(place.label for place in self.places if place is not None)


@dataclass(frozen=True, slots=True)
class NameRow:
    """Tensors of one name in all traces.

    Attributes:
        name: The name; null: tensors without a name.
        amounts: Memory in each trace; null: the trace has no names.
    """

    name: str
    amounts: tuple[Amount | None, ...]


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A setting or fact that differs between traces.

    Attributes:
        name: Name of the setting or fact.
        values: Its value in each trace; null: unknown.
    """

    name: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding in all traces.

    Attributes:
        code: Stable code ("MD201").
        found: The finding in each trace; null for a trace without it.
    """

    code: str
    found: tuple[ComparedFinding | None, ...]

    def fate(self, number: int) -> Fate:
        """Returns how the finding changed from the first trace to trace ``number``."""
        base, found = self.found[0], self.found[number]
        if base is None or found is None:
            return "new" if found is not None else "gone" if base is not None else "absent"
        order = SEVERITIES.index(base.severity) - SEVERITIES.index(found.severity)
        return "same" if order == 0 else "worse" if order > 0 else "better"


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves on one axis.

    Attributes:
        aligned_by: "step": equal steps of all traces share a position; "share": each trace fills the axis.
        start: Start of the axis, in steps (negative: before the first step) or 0.
        end: End of the axis, in steps or 1.
        first_steps: Step of each trace at position 0 of the axis; null: aligned by share.
        reserved, allocated: For each trace the highest value in each of equal parts of the axis; -1: unknown, or the
        trace has no events in that part.
    """

    aligned_by: Literal["step", "share"]
    start: float
    end: float
    first_steps: tuple[int, ...] | None
    reserved: tuple[tuple[int, ...], ...]
    allocated: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more traces compared.

    Attributes:
        verdicts: One sentence for each trace except the first.
        is_same: Whether no compared value differs.
        lifetime_unit: Unit of mean lifetimes: "steps", or "share" of the trace.
        sites: Call sites that hold memory in any trace, the largest difference first; None: fewer than two traces have
            call stacks.
        names: Tensor names that hold memory in any trace, likewise.
        differences: Settings, versions and facts that differ.
        findings: Findings of any trace.
        curves: Curves on a common axis; None: fewer than two traces have curves.
        at: The requested moment: "default", "oom", "peak", "allocated", "reserved", "end" or an event.
        top: Number of rows that a list is meant to show.
        notes: Limits of the comparison.
        shared_end: Common end of the paths, if the traces have the same file under different paths; "": they do not.
    """

    sides: tuple[Side, ...]
    verdicts: tuple[str, ...]
    is_same: bool
    lifetime_unit: Literal["steps", "share"]
    sites: tuple[SiteRow, ...] | None
    names: tuple[NameRow, ...] | None
    differences: tuple[FactDifference, ...]
    findings: tuple[FindingRow, ...]
    curves: Curves | None
    at: str | int = "default"
    top: int = 10
    notes: tuple[str, ...] = ()
    shared_end: str = ""
