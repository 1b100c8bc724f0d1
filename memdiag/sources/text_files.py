"""Opens text files for piecewise reading, including gzip, so that neither a large trace nor a bomb exhausts memory."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.sources.files import GZIP_MAGIC
from memdiag.text import phrase
from memdiag.units import MIB, format_bytes

# Text is read piecewise and only numbers are retained, so a gzip may expand further than one that is loaded completely.
# JSON traces compress thirtyfold.
_ALLOWANCE = 256 * MIB
_RATIO = 50


class _Counted(io.RawIOBase):
    """A stream that refuses to return more than ``limit`` bytes."""

    def __init__(self, inner: gzip.GzipFile, limit: int, path: Path) -> None:
        self._inner = inner
        self._left = limit
        self._limit = limit
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]
        data = self._inner.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise RefusedFile(
                phrase("errors.expands-text", path=str(self._path), value=str(format_bytes(self._limit))),
                phrase("errors.expands.hint"),
            )
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def open_text(path: Path, *, errors: str = "strict") -> Iterator[io.TextIOWrapper]:
    """Opens a UTF-8 text file (without its byte order mark), decompressed if it is a gzip, with its original line ends.

    Args:
        path: The file.
        errors: As for ``open``: "strict" raises UnicodeDecodeError, "replace" continues.

    Raises:
        RefusedFile: A gzip expands to more than 256 MiB and 50 times its size (while it is read).
    """
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP_MAGIC
        file.seek(0)
        if not zipped:
            yield io.TextIOWrapper(file, encoding="utf-8-sig", errors=errors, newline="")
            return
        with gzip.GzipFile(fileobj=file) as unzipped:
            counted = _Counted(unzipped, _ALLOWANCE + _RATIO * path.stat().st_size, path)
            yield io.TextIOWrapper(io.BufferedReader(counted, MIB), encoding="utf-8-sig", errors=errors, newline="")
