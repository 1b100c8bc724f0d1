"""The command, and the messages between it and the server. It imports few modules, since it starts often."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping

_READ_AT_START = (
    *("PATH", "HOME", "LANG", "LC_", "TMP", "LD_", "PYTHON"),
    *("OMP_", "MKL_", "NUMBA_", "TORCH", "KINETO", "ASCEND", "MEMDIAG_PHANTOM"),
)
_READ_LATER = ("PYTHONDONTWRITEBYTECODE", "TORCHINDUCTOR_CACHE_DIR", "MEMDIAG_PHANTOM_CARDS")
SITE = os.path.join(os.path.abspath(os.path.join(__file__, "../../..")), "memdiag", "recorder", "site")
_MOST_SERVERS = 3  # each has the memory of an imported torch
_PASSED_ON = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2")


def read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that matter when Python or a library is loaded.

    PYTHONPATH retains only the folders with a start-up file, except the recorder's.
    """
    found = {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_READ_AT_START) and name not in _READ_LATER
    }
    folders = [folder for folder in found.pop("PYTHONPATH", "").split(os.pathsep) if _runs_at_start(folder)]
    return {**found, "PYTHONPATH": os.pathsep.join(folders)} if folders else found


def added_folders(environment: Mapping[str, str]) -> list[str]:
    """Returns the other folders of PYTHONPATH."""
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [folder for folder in folders if folder and not _runs_at_start(folder)]


def _runs_at_start(folder: str) -> bool:
    """Returns whether a folder has a start-up file of Python, other than the recorder's."""
    return folder != SITE and os.path.exists(os.path.join(folder, "sitecustomize.py"))


def send_number(connection: socket.socket, number: int) -> None:
    """Sends a process number or a status."""
    try:
        connection.sendall(number.to_bytes(4, "little", signed=True))
    except OSError:  # the command was killed
        pass


def receive_request(connection: socket.socket) -> tuple[list, list[int]]:
    """Receives a request of ``main``, with its three open files."""
    data, files, _, _ = socket.recv_fds(connection, 8, 3)
    num_bytes = int.from_bytes(data, "little")
    text = b""
    while len(text) < num_bytes:
        text += connection.recv(num_bytes - len(text))
    return json.loads(text), files


def _server_for(folder: str, at_start: Mapping[str, str], words: list[str]) -> str:
    """Returns the path of the socket of a server, which the second program starts; "" if there is none yet."""
    place = f"{folder}/{hashlib.sha1(json.dumps(at_start).encode(), usedforsecurity=False).hexdigest()[:16]}"
    if _is_first(f"{place}.seen"):
        return ""
    if not os.path.exists(f"{place}.starting"):
        if sum(entry.name.endswith(".starting") for entry in os.scandir(folder)) >= _MOST_SERVERS:
            return ""
        if _is_first(f"{place}.starting"):
            _start(folder, place, at_start, words)
    has_server = os.path.exists(f"{place}.started") and os.path.exists(f"{place}.socket")
    return f"{place}.socket" if has_server else ""


def _is_first(path: str) -> bool:
    """Makes a file; returns whether this process was the first to do so."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _start(folder: str, place: str, at_start: Mapping[str, str], words: list[str]) -> None:
    """Starts a server in a session of its own, so that no signal for this command reaches it, and waits for it."""
    import subprocess

    with open(f"{folder}/alive") as alive:
        server = subprocess.Popen(
            [*words[:2], f"{place}.socket", *words[2:]],
            env=dict(at_start),
            stdin=alive,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    server.stdout.read(1)  # its first answer, or the end of its stdout
    _is_first(f"{place}.started")


def main(folder: str) -> None:
    """Runs the program that the arguments name, in a copy of a server of this folder."""
    words, environment = sys.argv[1:], dict(os.environ)
    with open(f"{folder}/server.json") as file:
        server = json.load(file)
    is_program = words and (words[0] in {"-c", "-m"} or words[0].endswith(".py"))
    path = _server_for(folder, read_at_start(environment), server) if is_program else ""
    if not path:
        os.execv(server[0], [server[0], *words])  # noqa: S606
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:  # the server has just ended
        os.execv(server[0], [server[0], *words])  # noqa: S606
    text = json.dumps([words, os.getcwd(), environment]).encode()
    socket.send_fds(connection, [len(text).to_bytes(8, "little")], [0, 1, 2])
    connection.sendall(text)
    child = int.from_bytes(connection.recv(4), "little")
    for name in _PASSED_ON:
        signal.signal(getattr(signal, "SIG" + name), lambda number, _: os.kill(child, number))
    status = int.from_bytes(connection.recv(4), "little", signed=True)
    if status >= 0:
        os._exit(status)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
