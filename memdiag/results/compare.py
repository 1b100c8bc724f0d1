"""The report of ``memdiag compare``, stable as JSON (docs/compare.md).

Every row has one entry for each trace, in the order given. The first trace is the base that the others are compared
with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memdiag.results.finding import SEVERITIES, Note, Severity
from memdiag.results.report import Fragmentation, Peak, Usage

SCHEMA_VERSION = 1

# How a call site of one trace was matched in another: same file, line and function; same under another path; line
# moved; different lines in the same function; function renamed; sites without a file, by their description; no match.
How = Literal["base", "same", "path", "moved", "renamed", "words", "only here"]

Fate = Literal["same", "new", "gone", "absent", "worse", "better"]


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A call site.

    Attributes:
        label: Short name ("train.py:35 forward"); for tensors without a Python stack, the reason why they have none.
        path: File as recorded in the trace, or "" if there is none.
        line: Line number, or 0 if there is none.
        function: Function name, or "" if there is none.
    """

    label: str
    path: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True, slots=True)
class Amount:
    """Memory held by a group of tensors at the compared moment.

    Attributes:
        bytes: Bytes of their blocks.
        num_tensors: Number of tensors.
        category: Category of most of the bytes ("activation"), or "" if unknown.
        lifetime: Lifetime of most of the bytes ("forward_to_backward"), or "" if unknown.
        life: Mean lifetime weighted by bytes, in ``Comparison.life_unit``, of the tensors that are freed within the
            trace; None if none is.
        kept_bytes: Bytes of tensors that are not freed within the trace.
    """

    bytes: int = 0
    num_tensors: int = 0
    category: str = ""
    lifetime: str = ""
    life: float | None = None
    kept_bytes: int = 0


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Held:
    """A call site, the memory its tensors hold, and the names of the largest of them."""

    place: CodePlace
    amount: Amount
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedFinding:
    """A finding, shortened to its main fields."""

    code: str
    severity: Severity
    title: str
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One trace of a comparison, at the compared moment.

    Attributes:
        letter: "A", "B", …
        path: The file.
        device: Index of the device.
        facts: Facts that the trace states about itself (backend, format, torch version, capacity, …), in words.
        settings: Allocator settings recorded in the file, in words.
        run: Command options, environment and versions from the run's manifest; empty if there is none.
        num_steps: Number of training steps, or None if unknown.
        at_event: The compared moment, or None if the file records only one state.
        moment: Its name ("event 1,204 (step 3, backward)").
        moment_kind: Kind of moment, see ``memdiag.trace.moments.ChosenMoment``.
        usage: Memory at that moment, in bytes.
        peak, peak_allocated: Peaks of the reserved and the allocated curve.
        split: Breakdown of reserved minus requested bytes at that moment.
        counts: Numbers of segments reserved and released, retries and failures; None if unknown.
        sites: Call sites that hold memory at that moment, largest first; None if the file has no call sites.
        names: The same by tensor name; None if the file has no names.
        findings: Findings of its analysis, worst first.
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
    sites: tuple[Held, ...] | None
    names: dict[str, Amount] | None
    findings: tuple[ComparedFinding, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """The first number to compare: reserved bytes at the moment, or allocated bytes if reserved is unknown."""
        return self.usage.reserved_bytes if self.usage.reserved_bytes is not None else self.usage.allocated_bytes


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A call site in all traces. ``amounts`` is None for a trace without call sites.

    Attributes:
        places: Its location in each trace, or None if it holds nothing there at that moment.
        how: How it was matched in each trace, or None if it was not.
    """

    places: tuple[CodePlace | None, ...]
    how: tuple[How | None, ...]
    amounts: tuple[Amount | None, ...]
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Short name, as in the first trace that has it."""
        return next(place.label for place in self.places if place is not None)


@dataclass(frozen=True, slots=True)
class NameRow:
    """Tensors of one name in all traces; ``amounts`` is None for a trace without names."""

    name: str
    amounts: tuple[Amount | None, ...]


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A setting or fact that differs between the traces; a value is None if a trace does not record it."""

    what: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding in all traces; an entry is None if that trace does not have it."""

    code: str
    found: tuple[ComparedFinding | None, ...]

    def fate(self, number: int) -> Fate:
        """Returns how the finding changed in trace ``number``, compared with the first trace."""
        base, found = self.found[0], self.found[number]
        if base is None or found is None:
            return "new" if found is not None else "gone" if base is not None else "absent"
        order = SEVERITIES.index(base.severity) - SEVERITIES.index(found.severity)
        return "same" if order == 0 else "worse" if order > 0 else "better"


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of several traces on one axis.

    Attributes:
        aligned_by: "step" aligns one step of each trace with the same step of the others; "share" scales each trace
            from beginning to end.
        start, end: Ends of the axis, in steps (below 0: before the first step) or as fractions (0 and 1).
        first_steps: Step of each trace at position 0, or None if aligned by share.
        reserved, allocated: For each trace, the highest value in each of equal parts of the axis; -1 if unknown or if
            the trace has no data there.
    """

    aligned_by: Literal["step", "share"]
    start: float
    end: float
    first_steps: tuple[int, ...] | None
    reserved: tuple[tuple[int, ...], ...]
    allocated: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two or more traces.

    Attributes:
        verdicts: One sentence for each trace except the first.
        is_same: Whether no compared value differs.
        life_unit: Unit of ``Amount.life``: "steps", or "share" of the trace.
        sites: Every call site that holds memory in any trace, largest difference first; None if fewer than two traces
            have call sites.
        names: The same by tensor name.
        differences: Settings, versions and facts that differ.
        findings: Findings of any trace.
        curves: None if fewer than two traces have curves.
        at: The chosen moment, as in ``memdiag.trace.moments``.
        top: Number of rows to show in a list.
        shared_end: The common suffix of the paths of files that moved between traces, or "" if there is none.
    """

    sides: tuple[Side, ...]
    verdicts: tuple[str, ...]
    is_same: bool
    life_unit: Literal["steps", "share"]
    sites: tuple[SiteRow, ...] | None
    names: tuple[NameRow, ...] | None
    differences: tuple[FactDifference, ...]
    findings: tuple[FindingRow, ...]
    curves: Curves | None
    at: str | int = "default"
    top: int = 10
    notes: tuple[str, ...] = ()
    shared_end: str = ""
    schema_version: int = field(default=SCHEMA_VERSION)
