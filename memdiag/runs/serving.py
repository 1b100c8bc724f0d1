"""Reads the log of an inference server, with the size of its card from a device profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memdiag.results.serving import ServingReport

_HEAD = 4 << 20  # bytes; servers start at the beginning of their log
_FEWEST_LINES = 2  # of an account; one pasted message needs no engine to be imported


def read_server_log(name: str, device: str | None = None) -> ServingReport:
    """Returns the memory account in a server's log.

    Args:
        name: A path, or "-" for standard input.
        device: Name of the card ("h100-80g"), if the log does not have its size.

    Raises:
        MemdiagError: The log cannot be read, no known engine wrote it, or the device is unknown.
    """
    from memdiag.serving.read import read_log  # imports the engines

    if device is None:
        return read_log(name)
    from memdiag.phantom.profiles import choose  # reads all profiles

    return read_log(name, choose(device).total_bytes)


def has_account(name: str) -> bool:
    """Returns whether the beginning of a file has the memory figures of an inference server.

    A single line, and the name of no file, have none.
    """
    path = Path(name)
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    if head.count(b"\n") < _FEWEST_LINES:
        return False
    from memdiag.serving.read import is_server_log

    return is_server_log(head.decode("utf-8", "replace"))
