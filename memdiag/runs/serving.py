"""Reads the log of an inference server, with the size of its card from a device profile."""

from __future__ import annotations

from pathlib import Path

from memdiag.results.serving import ServingReport
from memdiag.serving.read import is_server_log, read_log

_HEAD = 4 << 20  # bytes; servers start at the beginning of their log


def read_server_log(name: str, device: str | None = None) -> ServingReport:
    """Returns the memory account in a server's log.

    Args:
        name: A path, or "-" for standard input.
        device: Name of the card ("h100-80g"), if the log does not have its size.

    Raises:
        MemdiagError: The log cannot be read, no known engine wrote it, or the device is unknown.
    """
    if device is None:
        return read_log(name)
    from memdiag.phantom.profiles import choose  # reads all profiles

    return read_log(name, choose(device).total_bytes)


def has_account(name: str) -> bool:
    """Returns whether the beginning of a file has the memory figures of an inference server; False for other names."""
    path = Path(name)
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return is_server_log(file.read(_HEAD).decode("utf-8", "replace"))
    except OSError:
        return False
