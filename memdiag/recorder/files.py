"""Writes files atomically: to a temporary file first, which is then renamed.

If the process is killed, the last complete file remains.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import sys
import time
from typing import Any

from .guard import warn
from .texts import text_of

PROTOCOL = 4  # highest protocol that PyTorch's own viewer reads
CLAIM = ".rank{}.pid"
_WAIT, _PAUSE = 2.0, 0.5  # seconds of writing before a progress line is shown, and between two lines
_numbers = itertools.count()
_failures: list[str] = []


def write_pickle(path: str, content: Any) -> bool:
    """Writes ``content`` as a pickle; returns whether it succeeded."""

    def fill(file: Any) -> None:
        writer = _WithProgress(file, path)
        try:
            pickle.dump(content, writer, protocol=PROTOCOL)
        finally:
            writer.end()

    return _write(path, fill)


def write_json(path: str, content: Any, *, has_ended: bool = False) -> bool:
    """Writes ``content`` as JSON; returns whether it succeeded.

    ``has_ended``: The program is over, so a warning does not say that it continues.
    """
    return _write(
        path, lambda file: file.write((json.dumps(content, indent=1, default=str) + "\n").encode()), has_ended=has_ended
    )


def _write(path: str, fill: Any, *, has_ended: bool = False) -> bool:
    # A signal handler may write while the same file is being written.
    beside = f"{path}.{os.getpid()}.{next(_numbers)}.part"
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(beside, "wb", buffering=1 << 20) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        cannot_write(path, error, has_ended=has_ended)
        try:
            os.unlink(beside)
        except OSError:
            pass
        return False
    return True


class _WithProgress:
    """A file that shows its progress on a terminal if writing takes long; the line is removed at the end."""

    def __init__(self, file: Any, path: str) -> None:
        self._file = file
        self._name = os.path.basename(path)
        self._next = time.monotonic() + _WAIT
        self._bytes = 0
        self._is_shown = False

    def end(self) -> None:
        """Removes the line."""
        if self._is_shown:
            _show("")

    def write(self, data: Any) -> None:
        """Writes, and updates the line."""
        self._file.write(data)
        self._bytes += len(data)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PAUSE
            self._is_shown = _show(f"memdiag: writing {self._name}: {self._bytes >> 20:,} MiB")


def _show(text: str) -> bool:
    """Replaces the progress text; returns whether stderr is a usable terminal."""
    try:
        if not sys.stderr.isatty():
            return False
        sys.stderr.write("\r\x1b[K" + text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # the program has closed or replaced it
        return False
    return True


def cannot_write(path: str, error: OSError, *, has_ended: bool = False) -> None:
    """Warns that a file could not be written: only once, since the next ones will fail for the same reason."""
    if not _failures:
        why = error.strerror or str(error)
        text = text_of("unwritten.kept" if os.path.exists(path) else "unwritten.none", path=path, error=why)
        warn(text if has_ended else text_of("unwritten.continues", text=text))
    _failures.append(path)


class Place:
    """The file of this process in the run's folder: rank<k>.pkl.

    k is the rank of the process, or without a rank the first number that no other process has claimed. It is chosen
    when the first file is written, since only then it is clear that this process has data to write.
    """

    def __init__(self, folder: str, file: str = "") -> None:
        self._folder = folder
        self._path = file

    def path(self, rank: int | None) -> str:
        """Returns the path of this process's file."""
        if not self._path:
            os.makedirs(self._folder, exist_ok=True)
            number = 0 if rank is None else rank
            while not self._claim(number):
                number += 1
            self._path = os.path.join(self._folder, f"rank{number}.pkl")
        return self._path

    def _claim(self, number: int) -> bool:
        """Claims a number among all processes.

        ``memdiag record`` removes the marker files at the end, since processes may start later.
        """
        try:
            with open(os.path.join(self._folder, CLAIM.format(number)), "x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return not os.path.exists(os.path.join(self._folder, f"rank{number}.pkl"))
