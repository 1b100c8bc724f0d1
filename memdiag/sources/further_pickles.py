"""Pickles after the first one in a file, as ``cat`` and repeated ``pickle.dump`` write them: counted, never executed.

memdiag reads the first pickle only, as Python's ``pickle.load`` does. Older versions of ``torch.save`` write the
version and the system first, and then the object.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from memdiag.errors import RefusedFile
from memdiag.quoting import file_argument
from memdiag.results.finding import Note
from memdiag.sources.files import GZIP_MAGIC
from memdiag.sources.pickles import end_of_pickle
from memdiag.text import joined, phrase
from memdiag.units import MIB, format_bytes

_MOST_PICKLES = 64
_MOST_BYTES = 256 * MIB  # of further data in which pickles are counted
_FILLER = b"\0\r\n\t "


class Further(NamedTuple):
    """Data of a file after its first pickle.

    Attributes:
        num_bytes: Its size.
        num_pickles: How many pickles it consists of, at least.
        command: The command that copies the largest of them to a file; "" if there is none.
    """

    num_bytes: int = 0
    num_pickles: int = 0
    command: str = ""

    @property
    def notes(self) -> list[Note]:
        """The note about data that memdiag did not read, if there is any."""
        if not self.num_bytes:
            return []
        size = format_bytes(self.num_bytes)
        if not self.num_pickles:
            return [Note("MD916", phrase("notes.further.other", bytes=size))]
        return [Note("MD916", phrase("notes.further", bytes=size, count=self.num_pickles, command=self.command))]

    def hint(self, otherwise: str) -> str:
        """Returns the hint for a file whose first pickle is not a snapshot; ``otherwise`` is that without others."""
        if not self.num_pickles:
            return otherwise
        more = phrase("notes.further.hint", count=self.num_pickles, command=self.command)
        return joined([more, otherwise], "; ")


def further_pickles(content: bytes | Path, name: str, end: int) -> Further:
    """Returns what a file contains after its first pickle.

    Args:
        content: The content, or the file that contains it.
        name: Name of the file on disk, for the command.
        end: Number of bytes of the first pickle.
    """
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    if end >= size:
        return Further()
    rest = _read(content, end)
    if not rest.strip(_FILLER):
        return Further()
    is_gzip = isinstance(content, bytes)
    if is_gzip and not _is_gzip(name):  # the content was inside a page
        return Further(size - end)
    starts = [0]
    while starts[-1] < len(rest) and len(starts) <= _MOST_PICKLES:
        try:
            starts.append(starts[-1] + end_of_pickle(rest[starts[-1] :], name))
        except RefusedFile:  # cut off, or not plain data
            break
    if len(starts) == 1:
        return Further(
            size - end, int(rest.startswith(b"\x80")), _command(name, end, size - end, size, is_gzip=is_gzip)
        )
    first, last = max(pairwise(starts), key=lambda pair: pair[1] - pair[0])
    return Further(size - end, len(starts) - 1, _command(name, end + first, last - first, size, is_gzip=is_gzip))


def _read(content: bytes | Path, start: int) -> bytes:
    if isinstance(content, bytes):
        return content[start : start + _MOST_BYTES]
    with content.open("rb") as file:
        file.seek(start, os.SEEK_SET)
        return file.read(_MOST_BYTES)


def _is_gzip(name: str) -> bool:
    try:
        with Path(name).open("rb") as file:
            return file.read(2) == GZIP_MAGIC
    except OSError:
        return False


def _command(name: str, start: int, num_bytes: int, size: int, *, is_gzip: bool) -> str:
    """Returns the command that copies bytes of a file to another one."""
    file = file_argument(name)
    tail = f"gunzip -c {file} | tail -c +{start + 1}" if is_gzip else f"tail -c +{start + 1} {file}"
    return f"{tail} > next.pickle" if start + num_bytes == size else f"{tail} | head -c {num_bytes} > next.pickle"
