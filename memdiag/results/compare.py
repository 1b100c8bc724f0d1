"""The report of ``memdiag compare``, stable as JSON (docs/compare.md).

Every row has one entry for each trace, in the order they were given; the first trace is the base that the others are
held against.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from memdiag.results.finding import SEVERITIES, Note, Severity
from memdiag.results.report import Fragmentation, Peak, Usage

SCHEMA_VERSION = 1

# How a place of one trace was found again: at the same file, line and function; the same under another path; the line
# has moved; the file has other lines under that function; the function has another name; places without a file, by
# their words; not at all.
How = Literal["base", "same", "path", "moved", "renamed", "words", "only here"]

Fate = Literal["same", "new", "gone", "absent", "worse", "better"]


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A place in the code.

    Attributes:
        label: Short name ("train.py:35 forward"); of tensors without a Python stack, why they have none.
        path: File as the trace has it; "": there is none.
        line: Line; 0: none.
        function: Function; "": none.
    """

    label: str
    path: str = ""
    line: int = 0
    function: str = ""


@dataclass(frozen=True, slots=True)
class Amount:
    """What some tensors hold at the moment that is compared.

    Attributes:
        bytes: Of their blocks.
        num_tensors: How many they are.
        category: What most of the bytes are ("activation"); "": unknown.
        lifetime: How most of the bytes live ("forward_to_backward"); "": unknown.
        life: How long they live, mean over bytes, in ``Comparison.life_unit``; of those only whose end the trace shows;
            None: of none.
        kept_bytes: Bytes of which the trace does not show the end.
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
    """A place, what its tensors hold, and what the largest of them are called."""

    place: CodePlace
    amount: Amount
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedFinding:
    """A finding in few words."""

    code: str
    severity: Severity
    title: str
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One trace of a comparison, and the moment of it that is compared.

    Attributes:
        letter: "A", "B", …
        path: The file.
        device: Index of the device.
        facts: What the trace says of itself (backend, format, torch version, capacity, …), in words.
        settings: Allocator settings as the file has them, in words.
        run: Options of the command, environment and versions, as the manifest of its run has them; empty: it has none.
        num_steps: Training steps in it; None: not known.
        at_event: The moment that is compared; None: the file tells one state only.
        moment: Its name ("event 1,204 (step 3, backward)").
        moment_kind: What it is, see ``memdiag.trace.moments.ChosenMoment``.
        usage: Bytes then.
        peak, peak_allocated: The highest points of both curves.
        split: Where what is reserved and not asked for is, then.
        counts: Segments obtained and given back, retries, failures; None: not known.
        sites: Who holds memory then, most first; None: the file does not say where tensors were made.
        names: The same by name; None: it has no names.
        findings: What an analysis of it finds, the worst first.
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
        """What is compared first: bytes reserved at the moment; where that is not known, bytes allocated."""
        return self.usage.reserved_bytes if self.usage.reserved_bytes is not None else self.usage.allocated_bytes


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A place in the code in all traces. ``amounts`` is None where a trace does not say where tensors were made.

    Attributes:
        places: Where it is in each trace; None: it holds nothing there then.
        how: How it was found again in each; None where it was not.
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
    """Tensors of one name in all traces; ``amounts`` is None where a trace has no names."""

    name: str
    amounts: tuple[Amount | None, ...]


@dataclass(frozen=True, slots=True)
class FactDifference:
    """A setting or fact that is not the same in all traces; a value is None where a trace does not say."""

    what: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding in all traces; None: not there."""

    code: str
    found: tuple[ComparedFinding | None, ...]

    def fate(self, number: int) -> Fate:
        """Returns what has become of it in trace ``number``, held against the first."""
        base, found = self.found[0], self.found[number]
        if base is None or found is None:
            return "new" if found is not None else "gone" if base is not None else "absent"
        order = SEVERITIES.index(base.severity) - SEVERITIES.index(found.severity)
        return "same" if order == 0 else "worse" if order > 0 else "better"


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves on one axis.

    Attributes:
        aligned_by: "step": one step of each trace lies below the same step of the others; "share": from beginning to
            end of each.
        start, end: Of the axis, in steps (below 0: before the first step) or as shares (0 and 1).
        first_steps: Step of each trace that lies at 0; None where aligned by share.
        reserved, allocated: For each trace the highest value in each of equal parts of the axis; -1: not known, or none
        there.
    """

    aligned_by: Literal["step", "share"]
    start: float
    end: float
    first_steps: tuple[int, ...] | None
    reserved: tuple[tuple[int, ...], ...]
    allocated: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more traces beside each other.

    Attributes:
        verdicts: A sentence for each trace but the first.
        is_same: Nothing that is compared differs.
        life_unit: Of ``Amount.life``: "steps" or "share" (of the trace).
        sites: Every place that holds anything in any trace, largest difference first; None: fewer than two traces tell.
        names: The same by name.
        differences: Settings, versions and facts that differ.
        findings: Those of any trace.
        curves: None: fewer than two traces have any.
        at: The moment, as in ``memdiag.trace.moments``.
        top: How many rows a list is meant to show.
        shared_end: Of a file that lies elsewhere in another trace, the end that its paths share; "": none does.
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
