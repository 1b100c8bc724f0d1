"""The agent: a thread that sends statistics to the watcher, starts a history and writes files on request, and leaves.

Both sides send one JSON object per line. The watcher sends ``{"do": …}`` with a name of ``_REQUESTS``; the agent sends
``hello`` first, then ``reading``, and ``answer`` to every request. The end of the connection ends the watch.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import private, process
from .late import Late, other_recording
from .on_main import NotReached, on_main
from .sites import Sites
from .statistics import Statistics, torch_of_program
from .steps import Steps

PROTOCOL = 1
_SEND_SECONDS = 10.0  # a watcher that reads nothing for so long is gone
_BETWEEN_PASSES = 2.0
_HOOK_SECONDS = 0.5
_MOST_REQUEST = 1 << 16  # bytes


def start(connection: Any, token: str, package: str = "") -> None:
    """Starts the agent's thread.

    Args:
        connection: Socket to the watcher.
        token: What the watcher expects in the first message.
        package: Package to unload at the end; "" for none.
    """
    agent = Agent(connection, token, lambda: unload(package) if package else None)
    threading.Thread(target=agent.run, name="memdiag-watch", daemon=True).start()


def unload(package: str) -> None:
    """Removes the modules of a package that was loaded for one watch."""
    for name in [name for name in sys.modules if name == package or name.startswith(package + ".")]:
        sys.modules.pop(name, None)


class Agent:
    """One watch of this process."""

    def __init__(self, connection: Any, token: str, left: Callable[[], None]) -> None:
        self._connection = connection
        self._token = token
        self._left = left
        self._torch = torch_of_program()
        self._statistics = Statistics(self._torch) if self._torch is not None else None
        self._steps = Steps()
        self._sites = Sites()
        self._late: Late | None = None
        self._interval = 0.0
        self._next = 0.0
        self._rest = b""
        self._requests: dict[str, Callable[[dict[str, Any]], Any]] = {
            "read": self._read,
            "history": self._history,
            "snapshot": self._snapshot,
            "leave": lambda _: None,
        }

    def run(self) -> None:
        """Serves the watcher until it says goodbye or is gone, and then removes all traces."""
        try:
            self._connection.settimeout(_SEND_SECONDS)
            self._say({"token": self._token, "hello": self._hello()})
            if self._torch is not None:
                self._serve()
        except OSError:
            pass
        finally:
            self._end()

    def _hello(self) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "torch": None if self._torch is None else str(self._torch.__version__),
            "rank": process.number("RANK"),
            "world": process.number("WORLD_SIZE"),
            "argv": private.arguments(getattr(sys, "orig_argv", sys.argv)),
            "phantom": bool(os.environ.get("MEMDIAG_PHANTOM")),
            "recorded": other_recording() is not None,
        }

    def _say(self, message: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    # -------------------------------------------------------------------------------------------------------- requests

    def _serve(self) -> None:
        while True:
            wait = None if not self._interval else max(self._next - time.monotonic(), 0.0)
            if select.select([self._connection], [], [], wait)[0]:
                for request in self._received():
                    if request.get("do") == "leave":
                        return
                    self._answer(request)
                if not self._rest and self._is_closed:
                    return
            if self._interval and time.monotonic() >= self._next:
                self._next = time.monotonic() + self._interval
                self._say({"reading": self._reading()})
            if self._interval and not self._steps.is_installed:
                self._install_steps()

    _is_closed = False

    def _received(self) -> list[dict[str, Any]]:
        data = self._connection.recv(1 << 14)
        self._is_closed = not data
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop() if data else b""
        if len(self._rest) > _MOST_REQUEST:
            raise OSError("a request is too long")
        return [json.loads(line) for line in lines if line.strip()]

    def _answer(self, request: dict[str, Any]) -> None:
        """Carries out a request; an error goes to the watcher and never to the program."""
        answer: dict[str, Any] = {"answer": request.get("do"), "failed": None}
        try:
            answer.update(self._requests[request["do"]](request) or {})
        except NotReached:
            answer["failed"] = "not-reached"
        except Exception as error:  # noqa: BLE001 - whatever happens here, the training continues
            answer["failed"] = f"{type(error).__name__}: {error}"
        self._say(answer)

    def _read(self, request: dict[str, Any]) -> dict[str, Any]:
        """Sends readings at an interval in seconds from now on, the first at once; 0: one reading only."""
        self._interval = float(request.get("interval") or 0.0)
        self._next = time.monotonic() + self._interval
        self._say({"reading": self._reading()})
        return {}

    def _reading(self) -> dict[str, Any]:
        statistics = self._statistics
        if statistics is None:
            return {}
        began = time.thread_time()
        found = statistics.read()
        found["steps"] = self._steps.count
        found["history"] = self._late is not None
        if self._late is not None:
            accelerators = [backend for backend in self._late.backends if backend.name in {"cuda", "xpu"}]
            found["sites"] = self._sites.read(accelerators)
        found["cost_seconds"] = time.thread_time() - began
        return found

    def _install_steps(self) -> None:
        """Installs the hook that counts steps, or tries again after the next reading."""
        try:
            on_main(self._steps.install, _HOOK_SECONDS)
        except NotReached:  # the program waits in a library: so far, the steps are unknown
            pass

    def _history(self, request: dict[str, Any]) -> dict[str, Any]:
        """Starts or stops the history."""
        if request.get("on") and self._late is None:
            if other_recording() is not None:
                return {"failed": "recorded"}
            statistics = self._statistics
            if statistics is None:
                return {"failed": "no-torch"}
            statistics.find()
            late = Late(self._torch, statistics.backends.values(), int(request.get("max_events") or 200_000))
            on_main(late.begin, between_passes=_BETWEEN_PASSES)
            self._late, self._sites = late, Sites()
        elif not request.get("on"):
            self._stop_history(5.0)
        return {"backends": [backend.name for backend in self._late.backends] if self._late is not None else []}

    def _stop_history(self, seconds: float | None) -> None:
        late = self._late
        if late is not None:
            on_main(late.leave, seconds, between_passes=_BETWEEN_PASSES)
            self._late = None

    def _snapshot(self, request: dict[str, Any]) -> dict[str, Any]:
        """Writes a trace file of the state now, with the events since the history was started."""
        path = str(request["path"])
        other = other_recording()
        if other is not None:
            from ..in_program import _copy

            on_main(lambda: _copy(other, path))
            return {"path": path}
        late = self._late or self._without_history()
        if late is None:
            return {"failed": "nothing"}
        # Hooks append to the columns of marks meanwhile, unless the main thread itself writes the file.
        is_still = self._late is None and all(backend.name != "npu" for backend in late.backends)
        done = late.write_to(path) if is_still else on_main(lambda: late.write_to(path), 30.0)
        return {"path": path} if done else {"failed": "unwritten"}

    def _without_history(self) -> Late | None:
        """Returns a recording that has only the state of now, without events and call stacks."""
        statistics = self._statistics
        if statistics is None:
            return None
        statistics.find()
        late = Late(self._torch, statistics.backends.values(), 0)
        late.backends = list(statistics.backends.values())
        return late if late.backends else None

    # ------------------------------------------------------------------------------------------------------------- end

    def _end(self) -> None:
        """Removes the hooks and the history, however long the main thread takes to come by."""
        try:
            self._stop_history(None)
            on_main(self._steps.remove, None)  # also waits for whatever was scheduled before
        except Exception:  # noqa: BLE001, S110 - nobody is left to report it to
            pass
        try:
            self._say({"left": True})
        except OSError:
            pass
        self._connection.close()
        self._left()
