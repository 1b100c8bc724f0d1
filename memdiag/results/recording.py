"""Result of ``memdiag record``: what a run has recorded, and what its trace shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memdiag.results.oom import OomReport
from memdiag.results.report import Report


@dataclass(frozen=True)
class RunMemory:
    """What the trace of one process of a run shows.

    Attributes:
        report: The diagnosis; None: the trace was not read, for one of the next two reasons.
        too_large_bytes: Size of a trace that is too large to be read without being asked for; None: it is not.
        unreadable: Why the trace cannot be read, and what to do; None: it can.
        oom: The out-of-memory error that ended the program; None: none did.
        steered: On a simulated device, for a program that failed: notes on values that were not computed or calls that
            are not imitated.
        is_steered_by_values: Whether one of them is about values that were not computed.
    """

    report: Report | None = None
    too_large_bytes: int | None = None
    unreadable: tuple[str, str] | None = None
    oom: OomReport | None = None
    steered: tuple[str, ...] = ()
    is_steered_by_values: bool = False


@dataclass(frozen=True)
class RunSummary:
    """A recorded run.

    Attributes:
        folder: Its folder, as people would type it here.
        wanted: The path that the trace of one process was to have as well; "": none.
        single: The path that it has; None: it has none.
        recorded: Status files of the processes with a trace, by rank, with "trace" (its path) and "bytes".
        chosen: The one to speak of: the first that ran out of memory, else rank 0; without ranks, the one with the most events. None:
            nothing was recorded.
        steps: Training steps of the process that did most.
        seconds: Duration of the run; ``marks_seconds`` and ``dumps_seconds`` the part that recording took.
        is_phantom: Whether it ran on a simulated device.
        was_sent_away: Whether a signal asked the command to end at once.
        warnings: Warnings of the recorder.
        problems: Files that could not be written or redacted, and why.
        nested: Folders of ``memdiag record`` commands inside the command.
        reasons: Why nothing was recorded, the most likely reason first; (): something was.
        memory: What the trace of ``chosen`` shows; None: it was not looked at.
    """

    folder: str
    wanted: str
    single: str | None
    recorded: tuple[Mapping[str, Any], ...]
    chosen: Mapping[str, Any] | None
    steps: int
    seconds: float
    marks_seconds: float
    dumps_seconds: float
    is_phantom: bool
    was_sent_away: bool
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    nested: tuple[str, ...]
    reasons: tuple[str, ...] = ()
    memory: RunMemory | None = None
