"""Writes output files atomically.

A file gets its name only when its whole content is on disk. After an error, the old file is unchanged, or no file
exists. Devices and pipes (``/dev/null``, ``/dev/stdout``) are written directly, and so is a file in a directory where
no new file can be created.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_LONGEST = 100  # number of characters of the file name that the temporary file repeats


def is_same(one: Path, other: Path) -> bool:
    """Returns whether both name the same existing file."""
    try:
        return one.samefile(other)
    except OSError:
        return False


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing; the file appears under its name when the block ends without an error.

    Raises:
        MemdiagError: The file cannot be written.
    """
    try:
        target = path.resolve()  # follow a symbolic link instead of replacing it
        if _takes_no_other(target):
            with target.open("wb") as file:
                yield file
            return
        part = target.with_name(f".{target.name[:_LONGEST]}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                yield file
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise MemdiagError(
            phrase("errors.unwritable", file=str(path), value=str(error.strerror or error)), phrase("errors.space.hint")
        ) from None


def write_whole(path: Path, content: bytes | str) -> None:
    """Writes a file; text is written in UTF-8.

    Raises:
        MemdiagError: The file cannot be written.
    """
    with whole_file(path) as file:
        file.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


def _takes_no_other(target: Path) -> bool:
    """Returns whether a file has to be written in place."""
    return target.exists() and (not target.is_file() or not os.access(target.parent, os.W_OK))
