"""``memdiag view``: browse a trace in the terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.options import NoReplay, TraceOrRun
from memdiag.errors import MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.results.report import Report
    from memdiag.trace.model import Trace

_LIKE_DUMB = {"", "dumb", "unknown"}


def view(
    trace: TraceOrRun = None,
    *,
    at: At = None,
    device: Annotated[
        int | None,
        typer.Option(
            "--device",
            metavar="N",
            min=0,
            help="Device to show first. Default: the one with the highest peak.",
            show_default=False,
        ),
    ] = None,
    no_replay: NoReplay = False,
) -> None:
    """Browse a trace in the terminal: live tensors, memory map and findings at any event.

    The arrow keys change the event and the row, Tab selects the next list, ?
    shows all keys, and q quits. The viewer works over ssh. Without a terminal,
    use memdiag analyze instead.

    Exit status: 0 success, 2 error.
    """
    moment = read_moment(at)
    _must_be_a_terminal()

    from memdiag.cli.choose import choose_trace
    from memdiag.cli.talk import busy, write_out

    path = choose_trace(trace)
    with busy(phrase("progress.loading", lead="")):
        from memdiag.redaction import is_on, redact_path
        from memdiag.text import plain
        from memdiag.tui.app import Viewer

    def read() -> Trace:
        from memdiag.cli.loading import read_trace

        return read_trace(path)

    def diagnose(found: Trace) -> Report:
        from memdiag.analyzers.report import build_report

        return build_report(found, at=moment, replay=not no_replay)

    title = redact_path(str(path)) if is_on() else str(path)
    viewer = Viewer(plain(title, 60), read, diagnose, at=moment, device=device)
    viewer.run()
    if viewer.failure is not None:
        raise viewer.failure
    if viewer.copied:
        write_out("".join(f"{plain(line)}\n" for line in viewer.copied))
    if viewer.return_code:
        raise typer.Exit(viewer.return_code)


def _must_be_a_terminal() -> None:
    hint = phrase("errors.terminal.hint")
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if any(stream is None or not stream.isatty() for stream in streams):
        raise MemdiagError(phrase("errors.terminal"), hint)
    if os.environ.get("TERM", "") in _LIKE_DUMB:
        raise MemdiagError(
            phrase("errors.terminal.term", term=os.environ.get("TERM") or phrase("errors.terminal.unset")), hint
        )
    try:
        "█▒…".encode(sys.stderr.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        raise MemdiagError(phrase("errors.terminal.encoding", encoding=str(sys.stderr.encoding)), hint) from None
