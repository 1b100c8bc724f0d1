"""The connection to the agent inside a watched process."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.text import phrase

from .door import Door
from .target import Target

_SNAPSHOT_SECONDS = 300.0


class WatchEnded(Exception):
    """The watched process has ended, or its agent has."""


class AgentLink:
    """Requests to an agent and its readings.

    Args:
        target: The process.
        door: Where its agent has connected.
        mechanism: Name of the way in.

    Attributes:
        hello: What the agent says about its process.

    Raises:
        MemdiagError: The agent could not start, or the process has not imported torch.
    """

    def __init__(self, target: Target, door: Door, mechanism: str) -> None:
        assert door.connection is not None  # noqa: S101 - the caller has waited for it
        self.target = target
        self.mechanism = mechanism
        self._socket = door.connection
        self._rest = b""
        self._messages: deque[dict[str, Any]] = deque()
        self._readings: deque[dict[str, Any]] = deque(maxlen=64)
        pid = f"{target.pid}"
        try:
            first = self._next(door.seconds)
        except WatchEnded:
            raise MemdiagError(phrase("watch.ended", pid=pid), phrase("watch.ended.hint")) from None
        if first is None or first.get("token") != door.token:
            self._socket.close()
            raise MemdiagError(
                phrase("watch.silent", pid=pid, seconds=f"{door.seconds:.0f}"), phrase("watch.silent.hint")
            )
        if first.get("failed"):
            raise MemdiagError(phrase("watch.agent", pid=pid, error=str(first["failed"])), phrase("watch.agent.hint"))
        self.hello: dict[str, Any] = first["hello"]
        if self.hello.get("torch") is None:
            self._socket.close()
            raise MemdiagError(phrase("watch.no-torch", pid=pid), phrase("watch.no-torch.hint"))

    def fileno(self) -> int:
        """Returns the socket's number, for ``select``."""
        return self._socket.fileno()

    def read(self, interval: float) -> None:
        """Requests readings at an interval in seconds; 0: one."""
        self._send({"do": "read", "interval": interval})

    def history(self, on: bool, max_events: int) -> dict[str, Any]:
        """Starts or stops the history; returns the answer."""
        return self._ask({"do": "history", "on": on, "max_events": max_events}, 30.0)

    def snapshot(self, path: Path) -> None:
        """Lets the process write a trace file.

        Raises:
            MemdiagError: It could not.
            WatchEnded: The process ended meanwhile.
        """
        answer = self._ask({"do": "snapshot", "path": str(path.absolute())}, _SNAPSHOT_SECONDS)
        failed = answer.get("failed")
        if failed:
            pid = f"{self.target.pid}"
            known = failed if failed in {"unwritten", "nothing", "not-reached"} else "failed"
            raise MemdiagError(
                phrase(f"watch.snapshot.{known}", path=str(path), pid=pid, error=str(failed)),
                phrase("watch.snapshot.hint"),
            )

    def readings(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Returns the readings that arrive within a time; waits for the first only.

        Raises:
            WatchEnded: The process has ended.
        """
        if not self._readings:
            message = self._next(seconds)
            self._keep(message)
        while self._messages:
            self._keep(self._messages.popleft())
        while self._readings:
            yield self._readings.popleft()

    def close(self) -> None:
        """Detaches: the agent removes all hooks and the history. A process that has ended is no error."""
        with contextlib.suppress(OSError, WatchEnded):
            self._send({"do": "leave"})
            until = time.monotonic() + 5.0
            while time.monotonic() < until:
                message = self._next(max(until - time.monotonic(), 0.01))
                if message is None or message.get("left"):
                    break
        self._socket.close()

    def _keep(self, message: dict[str, Any] | None) -> None:
        if message is not None and message.get("reading"):
            self._readings.append(message["reading"])

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        self._send(request)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            message = self._next(left)
            if message is not None and message.get("answer") == request["do"]:
                return message
            self._keep(message)
        return {"failed": "not-reached"}

    def _send(self, request: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            raise WatchEnded from None

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """Returns the next message, or None after a time without one."""
        until = time.monotonic() + seconds
        while not self._messages:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                return None
            except OSError:
                raise WatchEnded from None
            if not data:
                raise WatchEnded
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()
            self._messages.extend(json.loads(line) for line in lines if line.strip())
        return self._messages.popleft()
