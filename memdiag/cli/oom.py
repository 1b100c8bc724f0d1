"""``memdiag oom``: explain out-of-memory messages, given as text or in logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.budgets import end_if_hit, over, read_budgets
from memdiag.errors import COULD_NOT, MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.oom.inputs import OomInput
    from memdiag.results.oom import OomReport

MOST_ROWS = 10
MOST_SERVER_LOGS = 8  # that are looked at for a memory account


def oom(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|TEXT",
            help="Log files, directories of logs, - for standard input, the message itself, or a recording.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain oom-json describes the keys).")
    ] = False,
    as_md: Annotated[bool, typer.Option("--md", help="Print Markdown to paste into an issue.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the report to FILE; the ending .json or .md selects the format.",
            show_default=False,
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show all remedies, all reasons, and every part of the device memory.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show a row for each rank and each message; includes --verbose.")
    ] = False,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=1, help="Maximum number of rows in each list. Default: 10.", show_default=False
        ),
    ] = None,
    from_trace: Annotated[
        Path | None,
        typer.Option(
            "--from-trace",
            metavar="TRACE",
            help="Memory trace of the same run, which shows what held the memory.",
            show_default=False,
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="any|CAUSE|CODE",
            help="Exit with status 1 if the log has any out-of-memory message, one with this cause, or one with this "
            "finding code; can be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Explain an out-of-memory message: its cause, what to try first, and who held the memory.

    Pass logs of any length, folders of logs, - for a pipe, or the message in
    quotes: memdiag oom train.log

    memdiag reads the messages of PyTorch on every backend, of JAX, TensorFlow,
    vLLM and others, of libraries, and of Linux.

    Exit status: 0 success, also without a message; 1 a --fail-on condition
    matched; 2 error.
    """
    budgets = _budgets(fail_on)

    from memdiag.cli.emit import emit, form_of
    from memdiag.cli.loading import OnTerminal
    from memdiag.cli.offer import offer_fix
    from memdiag.cli.progress import Progress
    from memdiag.cli.talk import say
    from memdiag.oom.inputs import USAGE, choose, split_trace
    from memdiag.oom.read import has_message
    from memdiag.runs.explaining import explain

    if from_trace is None:
        from_trace, given = split_trace(given or [])
    form = form_of(as_json=as_json, as_md=as_md, output=output)
    chosen = [] if from_trace and not given else choose(given or [], has_message=has_message, say=say)
    if not chosen and from_trace is None:
        typer.echo(USAGE, err=True, nl=False)
        raise typer.Exit(COULD_NOT)
    _check_output(output, chosen, from_trace)
    with Progress() as progress:
        report = explain(chosen, from_trace, listener=OnTerminal(), progress=progress)

    from memdiag.render import renderer

    render = renderer("oom", form)
    emit(lambda look: render(report, look, every=every, top=top or MOST_ROWS, verbose=verbose), output)
    _point_to_account(report)
    if form == "terminal" and report.trace and report.messages:
        offer_fix(Path(report.trace))
    end_if_hit(_over(report, budgets))


def _budgets(given: list[str] | None) -> list[str]:
    if not given:
        return []
    from memdiag.results.oom import CAUSES

    hint = phrase("errors.fail-on.causes", causes=", ".join(CAUSES))
    return read_budgets(given, hint, ("any", *CAUSES), phrase("errors.fail-on.any"))


def _over(report: OomReport, budgets: list[str]) -> list[str]:
    """Returns the --fail-on conditions that the report matches, in the order of the messages."""
    hits: list[str] = []
    for message in report.messages:
        hits += [word for word in ("any", message.judgement.verdict) if word in budgets]
        hits += over(message.findings, budgets)
    return hits


def _point_to_account(report: OomReport) -> None:
    """Names the command that reads an inference server's memory account, for logs that have one."""
    sources = [source for source in dict.fromkeys(message.source for message in report.messages) if source]
    if not sources:
        return
    from memdiag.cli.talk import say
    from memdiag.runs.serving import has_account

    for source in sources[:MOST_SERVER_LOGS]:
        if has_account(source):
            say(phrase("serving.oom-hint", name=source))


def _check_output(output: Path | None, chosen: list[OomInput], from_trace: Path | None) -> None:
    from memdiag.output_file import is_same

    read = [item.path for item in chosen if item.path] + ([from_trace] if from_trace else [])
    if output is not None and any(is_same(output, path) for path in read):
        raise MemdiagError(phrase("errors.is-input", output=str(output)), phrase("errors.name-another"))
