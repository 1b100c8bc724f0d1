"""Result of ``memdiag record``: the recorded run, and a summary of its trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memdiag.results.oom import OomReport
from memdiag.results.report import Report
from memdiag.results.shared_cards import SharedCard


@dataclass(frozen=True)
class RunMemory:
    """Summary of the trace of one process of a run.

    Attributes:
        report: The diagnosis, or None if the trace was not read, for one of the next two reasons.
        too_large_bytes: Size of a trace that is too large to be read unless the user asks for it, otherwise None.
        unreadable: Why the trace cannot be read, and what to do; None if it can.
        oom: The out-of-memory error that ended the program, or None if none did.
        steered: For a program that failed on a simulated device: notes on values that were not computed, on sizes that
            depend on such values, and on calls that are not simulated.
        last_synthetic: For such a program: the setting of ``--values``, and the place of the last read of a value that
            was not computed; None if it read none.
        is_steered_by_values: Whether one of the notes is about values that were not computed or sizes that depend on
            them, and memdiag has not tried other values yet.
        unsupported: torch_npu's code of the error that ended the program, if torch_npu does not support an operation;
            then values that were not computed are not the reason.
    """

    report: Report | None = None
    too_large_bytes: int | None = None
    unreadable: tuple[str, str] | None = None
    oom: OomReport | None = None
    steered: tuple[str, ...] = ()
    last_synthetic: tuple[str, str] | None = None
    is_steered_by_values: bool = False
    unsupported: str = ""


@dataclass(frozen=True)
class RunSummary:
    """A recorded run.

    Attributes:
        folder: Its folder, as a path relative to the current directory where possible.
        wanted: The additional path for the trace of a single process, relative where possible; "" if there is none.
        is_wanted_named: Whether the name of that file differs from the default, which the command chooses by itself.
        single: The additional path that was written, relative where possible, or None if none was.
        recorded: Status files of the processes with a trace, by rank, with "trace" (its path), "name" (the path
            relative to the current directory where possible) and "bytes".
        chosen: The process to summarise: the first that ran out of memory, else rank 0, else the one with the most
            events. None if nothing was recorded.
        steps: Training steps of the process with the most steps.
        seconds: Duration of the run; ``marks_seconds`` and ``dumps_seconds`` are the parts that recording took.
        is_phantom: Whether it ran on a simulated device.
        was_sent_away: Whether a signal ended the command early.
        warnings: Warnings of the recorder.
        problems: Files that could not be written or redacted, and why.
        nested: Folders of ``memdiag record`` commands inside the command.
        reasons: Why nothing was recorded, the most likely reason first; empty if something was.
        memory: Summary of the trace of ``chosen``, or None if it was not read.
        cards: Cards that several of the processes used; empty if the traces were too large to be read.
    """

    folder: str
    wanted: str
    is_wanted_named: bool
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
    cards: tuple[SharedCard, ...] = ()
