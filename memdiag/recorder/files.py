"""Writes files whole or not at all: beside first, then renamed. A kill at any moment leaves the last whole file."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from typing import Any

from .guard import warn

PROTOCOL = 4  # what PyTorch's own viewer reads
CLAIM = ".rank{}.pid"
_numbers = itertools.count()
_failures: list[str] = []


def write_pickle(path: str, content: Any) -> bool:
    """Writes ``content`` as a pickle; returns whether it could be."""
    return _write(path, lambda file: pickle.dump(content, file, protocol=PROTOCOL))


def write_json(path: str, content: Any) -> bool:
    """Writes ``content`` as JSON; returns whether it could be."""
    return _write(path, lambda file: file.write((json.dumps(content, indent=1, default=str) + "\n").encode()))


def _write(path: str, fill: Any) -> bool:
    beside = f"{path}.{os.getpid()}.{next(_numbers)}.part"  # a signal's handler may write while the same file is being written
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(beside, "wb", buffering=1 << 20) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        cannot_write(path, error)
        try:
            os.unlink(beside)
        except OSError:
            pass
        return False
    return True


def cannot_write(path: str, error: OSError) -> None:
    """Says that a file could not be written: once, since the next ones will fail for the same reason."""
    if not _failures:
        kept = "what was written before is still there" if os.path.exists(path) else "nothing was written before"
        warn(f"{path} could not be written: {error.strerror or error}; {kept}, and the program goes on")
    _failures.append(path)


class Place:
    """Which file of a run is this process's: rank<k>.pkl.

    k is the rank where the process has one; without one the first number that no other process has taken. It is decided when the
    first file is written, since only then it is clear that this process has something to write.
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
        """Takes a number, once and for all processes; ``memdiag record`` takes the marks away at the end, but processes may begin later."""
        try:
            with open(os.path.join(self._folder, CLAIM.format(number)), "x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return False
        return not os.path.exists(os.path.join(self._folder, f"rank{number}.pkl"))
