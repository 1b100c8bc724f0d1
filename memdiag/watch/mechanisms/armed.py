"""A process that called ``memdiag.arm()`` or runs with ``MEMDIAG_ARM=1``: it waits at a socket of its own."""

from __future__ import annotations

import socket
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.recorder.watching.arming import folder_for, is_private
from memdiag.text import phrase
from memdiag.watch.door import Door
from memdiag.watch.target import Target

NAME = "armed"


def can_enter(target: Target) -> bool:
    """Returns whether the process has such a socket."""
    return _socket(target) is not None


def enter(target: Target, door: Door) -> None:
    """Connects to the process.

    Raises:
        MemdiagError: It does not accept the connection.
    """
    path = _socket(target)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(door.seconds)
    try:
        connection.connect(str(path))
    except OSError as error:
        connection.close()
        raise MemdiagError(
            phrase("watch.armed", pid=f"{target.pid}", error=str(error.strerror or error)), phrase("watch.armed.hint")
        ) from None
    door.token, door.connection = "", connection


def _socket(target: Target) -> Path | None:
    folder = folder_for(target.user)
    if not is_private(folder, target.user):
        return None
    paths = sorted(Path(folder).glob(f"{target.pid}-*.sock"), key=lambda path: path.stat().st_mtime)
    return paths[-1] if paths else None
