"""Writes a trace in a format of ``EXPORTS``: chooses the format and the file, and checks the request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.exports.model import TABLES, Wanted
from memdiag.output_file import is_same
from memdiag.registry import EXPORTS
from memdiag.results.written import ExportedFile, ExportedFiles
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.moments import DEFAULT
from memdiag.units import parse_bytes

_TABLES = ("csv", "parquet")  # formats that write a file for each table


def export(trace: Trace, name: str, file: Path, wanted: Wanted) -> ExportedFiles:
    """Writes a trace in format ``name`` and returns the written files.

    Raises:
        MemdiagError: A file cannot be written, or the trace does not have what is requested.
    """
    try:
        written = EXPORTS[name].write(trace, file, wanted)
    except OSError as error:
        raise MemdiagError(
            phrase("errors.unwritable", file=str(file), value=str(error.strerror or error)),
            phrase("errors.directory-mode"),
        ) from None
    files = tuple(ExportedFile(str(each), each.stat().st_size) for each in written)
    return ExportedFiles(name, trace.path, files)


def destination(name: str, source: Path, output: Path | None) -> Path:
    """Returns the file to write: ``output``, or a file next to it or in this directory that is named after the trace.

    Raises:
        MemdiagError: It is the trace itself.
    """
    suffix = EXPORTS[name].SUFFIXES[0]
    file = output if output is not None else Path(source.name.removesuffix(".gz")).with_suffix(suffix)
    if output is None and is_same(file, source):
        file = file.with_stem(f"{file.stem}-exported")
    if is_same(file, source):
        raise MemdiagError(phrase("errors.is-trace.o", file=str(file)), phrase("errors.name-another"))
    return file / Path(source.name).with_suffix(suffix) if file.is_dir() and name not in _TABLES else file


def format_for(given: str | None, output: Path | None) -> str:
    """Returns the given format, or the format that the suffix of ``output`` implies.

    Raises:
        MemdiagError: There is no such format, or the suffix belongs to none.
    """
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


def request(
    name: str,
    *,
    device: int | None = None,
    tables: Sequence[str] = (),
    min_size: str | None = None,
    at: str | int | None = None,
) -> Wanted:
    """Returns the request for an export.

    Args:
        name: The format.
        device: The only device to export, or None for all.
        tables: Names of tables, also several in one text, separated by commas; empty for all.
        min_size: Smallest size of a tensor, for example "1MiB", or None for all.
        at: The moment, as in ``memdiag.trace.moments``, or None for the default.

    Raises:
        MemdiagError: The format does not have one of these options, or a value cannot be read.
    """
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
    return Wanted(
        device, chosen or TABLES, parse_bytes(min_size) if min_size is not None else 0, DEFAULT if at is None else at
    )
