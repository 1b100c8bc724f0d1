"""``memdiag compare``: compare two or more traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.options import AsHtml, AsMarkdown, OutputReport, Top
from memdiag.errors import COULD_NOT, MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.compare.side import ComparedTrace

_USAGE = """\
error: fewer than two traces given
hint: give two files or run directories, the base first:
  memdiag compare before.pkl after.pkl
  memdiag compare run-a/ run-b/ --rank 3
  memdiag compare run/            (its ranks, or its devices)
"""


def compare(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="A B [C...]",
            help="Trace files or run directories; the others are compared with the first one.",
            show_default=False,
        ),
    ] = None,
    *,
    at: At = None,
    top: Top = 10,
    device: Annotated[
        int | None,
        typer.Option(
            "--device",
            metavar="N",
            min=0,
            help="Compare only this device. Default: the one with the highest peak.",
            show_default=False,
        ),
    ] = None,
    rank: Annotated[
        int | None,
        typer.Option(
            "--rank",
            metavar="N",
            min=0,
            help="Rank to compare in each run directory. Default: the first one.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain compare describes the keys).")
    ] = False,
    as_md: AsMarkdown = False,
    as_html: AsHtml = None,
    output: OutputReport = None,
) -> None:
    """Compare two or more traces: which memory grew, at which call site, and why.

    memdiag compares traces of any kind: two runs, two ranks, CUDA and NPU,
    recorded and simulated (memdiag simulate --out). The report starts with the
    verdict. It then compares bytes, tensors and lifetimes by call site (matched
    even if lines have moved) and by name, free memory, settings, versions,
    curves and findings.

    Exit status: 0 success, 2 error.
    """
    from memdiag.cli.emit import emit, form_of

    moment = read_moment(at)
    form = form_of(as_json=as_json, as_md=as_md, output=output, with_html=True)
    if not traces:
        typer.echo(_USAGE, err=True, nl=False)
        raise typer.Exit(COULD_NOT)
    chosen = _sides(traces, device, rank, {"--output": output, "--html": as_html})

    from memdiag.cli.talk import busy

    with busy(phrase("progress.comparing", count=len(chosen))):
        from memdiag.compare.report import compare as held_against

        comparison = held_against(chosen, at=moment, top=top)

    from memdiag.render import renderer

    render = renderer("compare", form)
    emit(lambda look: render(comparison, look), output)
    if as_html is not None:
        page = renderer("compare", "html")
        emit(lambda look: page(comparison, look), as_html)


def _sides(
    given: Sequence[Path], device: int | None, rank: int | None, written: Mapping[str, Path | None]
) -> list[ComparedTrace]:
    """Reads the traces.

    Raises:
        MemdiagError: A trace cannot be read, there are too few or too many traces, or the output would overwrite one.
    """
    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import say
    from memdiag.compare.side import sides
    from memdiag.output_file import is_same
    from memdiag.runs.several import to_compare

    paths = to_compare(given, rank, say)
    for option, file in written.items():
        if file is not None and any(is_same(file, path) for path in paths):
            raise MemdiagError(
                phrase("errors.is-one.option", option=str(option), file=str(file)), phrase("errors.name-another")
            )
    return sides(paths, device, read_trace)
