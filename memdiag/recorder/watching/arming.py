"""``memdiag.arm()``: lets ``memdiag watch`` attach to this process later, without a debugger.

It opens a socket in a private folder and starts a thread that waits for a connection. Nothing else happens until then:
no hook, no history, no timer.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import stat
import struct
import tempfile
import threading
from typing import Any

VARIABLE = "MEMDIAG_ARM"
_armed: dict[int, str] = {}  # socket of this process, by its number


def folder_for(user: int) -> str:
    """Returns the folder of the sockets of a user's processes."""
    return os.path.join(tempfile.gettempdir(), f"memdiag-{user}")


def is_private(folder: str, user: int) -> bool:
    """Returns whether a folder belongs to a user, and nobody else can open it."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == user and not stat.S_IMODE(found.st_mode) & 0o077


def arm() -> str:
    """Lets ``memdiag watch`` attach to this process; later calls have no effect.

    Returns:
        The path of the socket, which only this user can open.

    Raises:
        OSError: The socket cannot be created, or the folder for it belongs to somebody else.
    """
    pid = os.getpid()
    if pid in _armed:
        return _armed[pid]
    user = os.getuid()
    folder = folder_for(user)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    if not is_private(folder, user):
        raise OSError(f"{folder} is not a private folder of this user")
    _remove_stale(folder)
    path = os.path.join(folder, f"{pid}-{secrets.token_hex(8)}.sock")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    os.chmod(path, 0o600)
    listening.listen(1)
    _armed[pid] = path
    threading.Thread(target=_wait, args=(listening, user), name="memdiag-armed", daemon=True).start()
    atexit.register(_remove, pid, path)
    return path


def _wait(listening: Any, user: int) -> None:
    from .agent import Agent

    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        if _peer(connection) not in {0, user}:
            connection.close()
            continue
        Agent(connection, "", lambda: None).run()  # one watcher at a time


def _peer(connection: Any) -> int:
    """Returns the user at the other end of a socket."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


def _remove_stale(folder: str) -> None:
    """Removes the sockets of processes that were killed."""
    for name in os.listdir(folder):
        number = name.partition("-")[0]
        if name.endswith(".sock") and number.isdigit() and not os.path.exists(f"/proc/{number}"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def _remove(pid: int, path: str) -> None:
    if os.getpid() == pid:  # not in a child of fork
        with contextlib.suppress(OSError):
            os.unlink(path)
