"""Explains out-of-memory messages, those of texts and logs, with a trace of the same run if there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from memdiag.oom.inputs import OomInput
from memdiag.oom.read import has_message, read_inputs
from memdiag.render import renderer
from memdiag.results.oom import OomReport
from memdiag.runs.chosen import choose_trace
from memdiag.runs.listener import SILENT, Listener
from memdiag.runs.serving import with_computed_flags
from memdiag.text import phrase

_LONGEST = 20_000  # characters of an exception that are searched for a message


def explain(
    inputs: Sequence[OomInput],
    trace: Path | None = None,
    *,
    listener: Listener = SILENT,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> OomReport:
    """Returns the messages in texts and logs, explained by a trace; without inputs, the failures recorded in the trace.

    Args:
        inputs: Texts and files (``memdiag.oom.inputs.choose``).
        trace: A trace file or run directory, or None.
        listener: Receives progress of reading the trace.
        progress: As in ``memdiag.oom.read.read_files``.

    Raises:
        MemdiagError: An input or the trace cannot be read, or a text without a message looks like a file name.
    """
    report = with_computed_flags(read_inputs(inputs, progress)) if inputs else None
    if trace is None:
        return report or OomReport(())
    rank = report.messages[0].rank if report and report.messages else None
    path = choose_trace(trace, rank, listener.say, of_failure=True)
    from memdiag.runs.neighbours import with_neighbours_beside

    read = with_neighbours_beside(listener.read_trace(path), listener)
    with listener.busy(phrase("progress.diagnosing", count=read.num_events)):
        from memdiag.analyzers.support.joined import join  # only a trace needs the analyzers

        return replace(join(report, read), trace=str(path))


def explain_error(error: BaseException | None, trace: Path | None) -> str:
    """Returns the first screen of ``memdiag oom`` for an exception and its trace, or "" if memory did not run out.

    Args:
        error: The exception, or None if only the trace is known.
        trace: A trace of the failed allocation, or None.

    Raises:
        MemdiagError: The trace cannot be read.
    """
    text = "" if error is None else f"{type(error).__name__}: {error}"[:_LONGEST]
    is_message = has_message(text)
    if not is_message and (trace is None or error is not None):
        return ""
    inputs = [OomInput(phrase("integrations.error"), text=text)] if is_message else []
    shown: str = renderer("oom", "terminal")(explain(inputs, trace))
    return shown.rstrip()
