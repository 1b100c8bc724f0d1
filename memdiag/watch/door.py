"""The watcher's side of the socket, and the file that a debugger lets the process run.

Both are in a folder that only the owner of the process can open. The folder is removed as soon as the agent has
connected, so a watcher that is killed later leaves no file.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from memdiag import recorder
from memdiag.errors import MemdiagError
from memdiag.text import phrase

from .target import Target

_BOOT = Path(recorder.__file__).parent / "watching" / "boot.py"


class Door:
    """Waits for the agent of a process. Use it in a ``with`` block.

    Args:
        target: The process.
        seconds: Time to wait for the agent.

    Attributes:
        script: Path of the file that starts the agent.
        connection: The socket to the agent, or None before it has connected.
        token: What the agent says first.
    """

    def __init__(self, target: Target, seconds: float) -> None:
        self.target = target
        self.token = secrets.token_hex(16)
        self.connection: socket.socket | None = None
        self.seconds = seconds
        self._folder = Path(tempfile.mkdtemp(prefix="memdiag-watch-"))  # nobody else can open it
        self.script = self._folder / "begin.py"
        address = str(self._folder / "door")
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(address)
        self._listening.listen(1)
        call = {
            "folder": str(_BOOT.parents[1]),
            "name": f"memdiag_watch_{self.token[:8]}",
            "address": address,
            "token": self.token,
            "seconds": seconds,
        }
        boot = _BOOT.read_text(encoding="utf-8")
        self.script.write_text(f"{boot}\n\n_begin(**{json.dumps(call)})\n", encoding="utf-8")
        if os.geteuid() != target.user:
            for path in (address, self.script, self._folder):
                os.chown(path, target.user, -1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def wait(self) -> None:
        """Waits until the agent has connected.

        Raises:
            MemdiagError: The process ended, or did not run Python code in time.
        """
        until = time.monotonic() + self.seconds
        self._listening.settimeout(0.1)
        while self.connection is None:
            try:
                self.connection, _ = self._listening.accept()
            except TimeoutError:
                pid = f"{self.target.pid}"
                if not self.target.is_alive:
                    raise MemdiagError(phrase("watch.ended", pid=pid), phrase("watch.ended.hint")) from None
                if time.monotonic() > until:
                    raise MemdiagError(
                        phrase("watch.silent", pid=pid, seconds=f"{self.seconds:.0f}"), phrase("watch.silent.hint")
                    ) from None
