"""``memdiag export``: write a trace in another tool's format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.options import TraceOrRun
from memdiag.errors import MemdiagError
from memdiag.registry import EXPORTS
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.exports.model import Wanted

_TABLES = ("csv", "parquet")


def export(
    trace: TraceOrRun = None,
    *,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="NAME",
            help=f"Format: {', '.join(EXPORTS)}. Default: by the ending of -o.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR",
            help="Write to this path. Default: <trace>.<ending of the format> in this directory.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        int | None, typer.Option("--device", metavar="N", min=0, help="Export only this device.", show_default=False)
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME,…",
            help="Table to write with csv or parquet: tensors, events or stacks. Default: all.",
            show_default=False,
        ),
    ] = None,
    min_size: Annotated[
        str | None,
        typer.Option(
            "--min-size",
            metavar="SIZE",
            help="Leave out tensors smaller than this with perfetto, for example 1MiB.",
            show_default=False,
        ),
    ] = None,
    at: At = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list of written files as JSON (memdiag explain export).")
    ] = False,
) -> None:
    """Write a trace in another tool's format.

    perfetto: counters and slices for ui.perfetto.dev. speedscope: flame graphs
    of bytes by call stack. csv, parquet: tables of tensors, events and stacks.
    snapshot: for PyTorch's own viewer.

    Exit status: 0 success, 2 error.
    """
    from memdiag.cli.choose import choose_trace, is_same
    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import busy, say, write_out

    path = choose_trace(trace)
    if format is None and output is None:
        from memdiag.sources.files import read_head

        read_head(path)  # report a missing file before a missing format
    name = _format(format, output)
    file = output if output is not None else Path(path.name.removesuffix(".gz")).with_suffix(EXPORTS[name].SUFFIXES[0])
    if output is None and is_same(file, path):
        file = file.with_stem(f"{file.stem}-exported")
    if is_same(file, path):
        raise MemdiagError(phrase("errors.is-trace.o", file=str(file)), phrase("errors.name-another"))
    if file.is_dir() and name not in _TABLES:
        file = file / Path(path.name).with_suffix(EXPORTS[name].SUFFIXES[0])
    wanted = _wanted(name, device, table or [], min_size, at)
    read = read_trace(path)
    with busy(phrase("progress.writing", file=str(file))):
        try:
            written = EXPORTS[name].write(read, file, wanted)
        except OSError as error:
            raise MemdiagError(
                phrase("errors.unwritable", file=str(file), value=str(error.strerror or error)),
                phrase("errors.directory-mode"),
            ) from None
    for each in written:
        say(phrase("progress.wrote", path=str(each)))
    if as_json:
        from memdiag.render import renderer
        from memdiag.results.written import ExportedFile, ExportedFiles

        files = tuple(ExportedFile(str(each), each.stat().st_size) for each in written)
        write_out(renderer("export", "json")(ExportedFiles(name, read.path, files)))


def _format(given: str | None, output: Path | None) -> str:
    """Returns the given format, or the format that the suffix of ``output`` implies."""
    if given is not None:
        if given not in EXPORTS:
            from difflib import get_close_matches

            close = get_close_matches(given.lower(), [*EXPORTS, "chrome"], 1, 0.5)
            meant = phrase("errors.meant", name=close[0].replace("chrome", "perfetto")) if close else ""
            raise MemdiagError(
                phrase("errors.format", given=str(given)),
                phrase("errors.format.hint", meant=meant, value=", ".join(EXPORTS)),
            )
        return given
    endings = {name: export.SUFFIXES for name, export in EXPORTS.items()}
    if output is None:
        raise MemdiagError(phrase("errors.which-format"), phrase("errors.which-format.hint", value="|".join(EXPORTS)))
    found = [
        (len(ending), name) for name, own in endings.items() for ending in own if output.name.lower().endswith(ending)
    ]
    if not found:
        known = "; ".join(f"{name}: {', '.join(own)}" for name, own in endings.items())
        raise MemdiagError(
            phrase("errors.no-format", output=str(output)), phrase("errors.no-format.hint", known=str(known))
        )
    return max(found)[1]


def _wanted(name: str, device: int | None, tables: list[str], min_size: str | None, at: str | None) -> Wanted:
    from memdiag.exports.model import TABLES, Wanted
    from memdiag.units import parse_bytes

    chosen = tuple(dict.fromkeys(each.strip() for item in tables for each in item.split(",") if each.strip()))
    for each in chosen:
        if each not in TABLES:
            raise MemdiagError(
                phrase("errors.table", each=str(each)), phrase("errors.table.hint", value=", ".join(TABLES))
            )
    if chosen and name not in _TABLES:
        raise MemdiagError(
            phrase("errors.table-of", value=" and ".join(_TABLES), name=str(name)), phrase("errors.leave-out")
        )
    if min_size is not None and name != "perfetto":
        raise MemdiagError(phrase("errors.min-size", name=str(name)), phrase("errors.leave-out"))
    if at is not None and name != "speedscope":
        raise MemdiagError(phrase("errors.at-speedscope", name=str(name)), phrase("errors.omit"))
    return Wanted(device, chosen or TABLES, parse_bytes(min_size) if min_size is not None else 0, read_moment(at))
