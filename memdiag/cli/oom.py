"""``memdiag oom``: an out-of-memory message, or logs with any number of them, in; cause, account and remedies out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.errors import BUDGET_HIT, MemdiagError

if TYPE_CHECKING:
    from memdiag.oom.model import OomReport

_SUFFIXES = {".json": "json", ".md": "md"}
_FORMS = {"terminal": "oom-terminal", "json": "oom-json", "md": "oom-md"}


def oom(
    message: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE... | - | TEXT]", help="Logs, folders of logs, - for a pipe, or the message itself.", show_default=False
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts (docs/oom-json.md).")] = False,
    as_md: Annotated[bool, typer.Option("--md", help="Print markdown, to paste into an issue.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write there; .json and .md choose the form.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="A row for every rank and message, rather than for groups.")] = False,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Rows in each list.")] = 10,
) -> None:
    """Explain an out-of-memory message: its cause, where the memory was, and what to do.

    Give it logs, folders, a pipe, or the message itself in quotes:

    memdiag oom "CUDA out of memory. Tried to allocate 1.50 GiB. …"

    Exit code: 0 done (also where no message is found), 2 it could not be done.
    """
    from memdiag.oom.read import read_text

    report = read_text(" ".join(message or []))
    _emit(report, "json" if as_json else "terminal", output)


def _emit(report: OomReport, form: str, output: Path | None) -> None:
    import sys

    from memdiag.cli.talk import look_of, say, write_out
    from memdiag.registry import RENDERERS, resolve
    from memdiag.render.look import Look

    render = resolve({"json": "memdiag.render.oom_json:render", "terminal": "memdiag.render.oom_terminal:render"}[form])
    write_out(render(report, look_of(sys.stdout)))
