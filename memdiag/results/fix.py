"""Results of ``memdiag fix``: remedies for a program, their prediction, and the measurement with them."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.text import Phrase


@dataclass(frozen=True)
class FixPeaks:
    """Peaks of a run of one process.

    Attributes:
        reserved_bytes: Reserved peak.
        allocated_bytes: Allocated peak; None: unknown, since the program has an allocator of its own.
        fits: Whether the run fits into the budget.
    """

    reserved_bytes: int
    allocated_bytes: int | None
    fits: bool


@dataclass(frozen=True)
class FixStep:
    """A remedy that applies to the program.

    Attributes:
        name: Name of the remedy.
        text: The change, an imperative sentence.
        where: Lines of the program, or parts of the model, that it concerns.
        by_hand: The same change in the program's own code; "": no single line.
        caveat: When not to use it, or what changes.
        is_safe: Whether results stay the same within the rounding that the caveat states.
        is_chosen: Whether it belongs to the plan.
        is_undone: Whether it was in the plan, and was removed because the program did worse with it.
        extra_forward: Share of a forward pass that each step computes again; estimated from the bytes that this part
            allocates.
        alone: Predicted peaks with this remedy only.
        actual_alone: Measured peaks with this remedy only; null: not measured, or the run failed.
        moved_bytes: Bytes that each step copies to the host, and back again; 0: it copies nothing.
        copy_us: Microseconds that these copies take; estimated from the speed of PCIe 4.0 with 16 lanes.
        cost: What the remedy costs in time, in words; null: the fields above say it.
    """

    name: str
    text: Phrase
    where: tuple[str, ...]
    by_hand: str
    caveat: Phrase
    is_safe: bool
    is_chosen: bool
    is_undone: bool
    extra_forward: float
    alone: FixPeaks
    moved_bytes: int = 0
    copy_us: int = 0
    cost: Phrase | None = None
    actual_alone: FixPeaks | None = None


@dataclass(frozen=True)
class FixRefusal:
    """A remedy that the structure of the program does not allow, in all of the program or in a part of it.

    Attributes:
        name: Name of the remedy.
        reason: Why memdiag does not apply it there.
        where: Lines of the program, or parts of the model, that it concerns.
        instead: What to do instead, in the program's own code or command.
    """

    name: str
    reason: Phrase
    where: tuple[str, ...]
    instead: str


@dataclass(frozen=True)
class FixAdvice:
    """A finding that memdiag fix cannot mend.

    Attributes:
        code: Code of the finding ("MD301").
        title: The problem in a few words, with its line.
        fix: The remedy, an imperative sentence.
        change: The line to change by hand; "": no single line.
    """

    code: str
    title: str
    fix: str
    change: str


@dataclass(frozen=True)
class LossComparison:
    """Losses of the original and of the fixed run, step by step.

    Attributes:
        num_compared: Number of losses that both runs computed.
        largest_relative: Largest relative difference; null: nothing could be compared.
    """

    num_compared: int
    largest_relative: float | None


@dataclass(frozen=True)
class StepTimes:
    """Time from one backward to the next in the original and in the fixed run, with the cost of recording.

    Attributes:
        before_us: Median in the original run, in microseconds.
        after_us: Median in the fixed run, in microseconds.
    """

    before_us: int
    after_us: int


@dataclass(frozen=True)
class FixReport:
    """The result of ``memdiag fix``.

    Attributes:
        command: The command as a shell line.
        device: The simulated device; null: the devices of this machine.
        budget_bytes: Memory of the card that the program should fit into.
        outside_bytes: Largest memory of the process outside PyTorch's allocator, for example of the context. A reserved
            peak fits if it is at most the rest of the budget.
        trace: The recording that the plan is based on.
        recorded: Peaks of the recording.
        steps: Remedies that apply, in the order in which they were considered.
        predicted: Peaks predicted with all chosen remedies.
        actual: Peaks of the fixed run; null: it was not run, or left no trace.
        exit_status: Exit status of the fixed run; null: it was not run.
        calibration_error_bytes: Error of the replay of the recorded settings; null: unknown. Predictions carry the same
            error.
        losses: Losses of both runs; null: a simulated device computes none, or the fixed program was not run.
        times: Time per backward in both runs; null: there is none to compare, or the device is simulated.
        folder: Folder of the fixed run; null: it was not run.
        written: Files that were written or changed.
        advice: Findings to mend by hand, if no set of remedies makes the program fit.
        refused: Remedies that the structure of the program does not allow.
    """

    command: str
    device: str | None
    budget_bytes: int
    outside_bytes: int
    trace: str
    recorded: FixPeaks
    steps: tuple[FixStep, ...]
    predicted: FixPeaks
    actual: FixPeaks | None
    exit_status: int | None
    calibration_error_bytes: int | None
    losses: LossComparison | None
    folder: str | None
    written: tuple[str, ...]
    advice: tuple[FixAdvice, ...] = ()
    refused: tuple[FixRefusal, ...] = ()
    times: StepTimes | None = None

    @property
    def chosen(self) -> tuple[FixStep, ...]:
        """The remedies of the plan."""
        return tuple(step for step in self.steps if step.is_chosen)
