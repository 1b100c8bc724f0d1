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
    from memdiag.trace.model import Trace

_USAGE = """\
error: fewer than two traces given
hint: give two files or run directories, the base first:
  memdiag compare before.pkl after.pkl
  memdiag compare run-a/ run-b/ --rank 3
  memdiag compare run/            (its ranks, or its devices)
"""
_MOST = 8  # columns of a table
_LETTERS = "ABCDEFGH"


def compare(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="A B [C...]", help="Trace files or run directories; the first one is the base.", show_default=False
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
            "--rank", metavar="N", min=0, help="Rank of each run to compare. Default: the first.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain compare).")] = False,
    as_md: AsMarkdown = False,
    as_html: AsHtml = None,
    output: OutputReport = None,
) -> None:
    """Compare two or more traces: which memory grew, at which call site, and why.

    Compares traces of any kind: two runs, two ranks, CUDA and NPU, recorded and
    simulated (memdiag simulate --out). The report starts with the verdict. It
    then compares bytes, tensors and lifetimes by call site (matched even if
    lines have moved) and by name, free memory, settings, versions, curves and
    findings.

    Exit status: 0 success, 2 error.
    """
    from memdiag.cli.emit import emit, form_of

    moment = read_moment(at)
    form = form_of(as_json=as_json, as_md=as_md, output=output, with_html=True)
    if not traces:
        typer.echo(_USAGE, err=True, nl=False)
        raise typer.Exit(COULD_NOT)
    chosen = _chosen(traces, device, rank, {"--output": output, "--html": as_html})

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


def _chosen(
    given: Sequence[Path], device: int | None, rank: int | None, written: Mapping[str, Path | None]
) -> list[ComparedTrace]:
    """Reads the traces and chooses the device of each.

    Raises:
        MemdiagError: A trace cannot be read, there are too few or too many traces, or the output would overwrite one.
    """
    from memdiag.cli.choose import is_same, ranks_in
    from memdiag.cli.several import one_each
    from memdiag.compare.side import choose_device

    ranks = list(ranks_in(given[0]).values()) if len(given) == 1 and rank is None else []
    paths = ranks if len(ranks) > 1 else one_each(given, rank)
    if len(paths) > _MOST:
        raise MemdiagError(
            phrase("errors.too-many", value=str(len(paths)), most=str(_MOST)), phrase("errors.too-many.hint")
        )
    for option, file in written.items():
        if file is not None and any(is_same(file, path) for path in paths):
            raise MemdiagError(
                phrase("errors.is-one.option", option=str(option), file=str(file)), phrase("errors.name-another")
            )
    read = _read(paths)
    if len(read) == 1:
        return _devices(paths[0], read[0], device)
    numbers = [choose_device(trace, device).device for trace in read]
    return [_one(*each) for each in zip(_LETTERS, paths, read, numbers, strict=False)]


def _read(paths: Sequence[Path]) -> list[Trace]:
    from memdiag.cli.loading import read_trace

    read = {path: read_trace(path) for path in dict.fromkeys(paths)}
    return [read[path] for path in paths]


def _devices(path: Path, trace: Trace, device: int | None) -> list[ComparedTrace]:
    """Returns the devices of one trace, to be compared with each other.

    Raises:
        MemdiagError: The trace has only one device.
    """
    used = [each.device for each in trace.devices if each.num_events or len(each.tensors)]
    if device is not None or len(used) < 2:
        raise MemdiagError(phrase("errors.alone", path=str(path)), phrase("errors.second-trace"))
    if len(used) > _MOST:
        raise MemdiagError(
            phrase("errors.too-many-devices", path=str(path), value=str(len(used))),
            phrase("errors.too-many-devices.hint"),
        )
    return [_one(letter, path, trace, number) for letter, number in zip(_LETTERS, used, strict=False)]


def _one(letter: str, path: Path, trace: Trace, number: int) -> ComparedTrace:
    from memdiag.compare.facts import run_of
    from memdiag.compare.side import ComparedTrace, choose_device

    return ComparedTrace(letter, trace, choose_device(trace, number), run_of(path))
