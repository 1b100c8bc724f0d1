"""Starts the agent in a process that was started without memdiag; a debugger lets its main thread run this file.

memdiag appends a call of ``_begin``. The main thread stops at an arbitrary place, so it only starts a thread, which
does the rest.
"""

from __future__ import annotations

import _thread
from typing import Any


def _begin(folder: str, name: str, address: str, token: str, seconds: float) -> None:
    """Starts the agent in a thread.

    ``folder``: the recorder's; ``name``: name of the package under which it is loaded, and unloaded at the end;
    ``address``: the watcher's socket; ``seconds``: time that the watcher waits at most.
    """

    def load(part: str) -> Any:
        import sys
        from importlib import import_module
        from importlib.util import module_from_spec, spec_from_file_location

        if name not in sys.modules:
            path = folder + "/__init__.py"
            spec = spec_from_file_location(name, path, submodule_search_locations=[folder])
            if spec is None or spec.loader is None:
                raise ImportError(path)
            module = module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        return import_module(name + "." + part)

    def run() -> None:
        import socket

        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(seconds)
            connection.connect(address)
        except OSError:  # the watcher has given up
            connection.close()
            return
        try:
            load("watching.agent").start(connection, token, name)
        except BaseException as error:  # noqa: BLE001 - the watcher shows it, and the program must continue
            import json

            text = f"{type(error).__name__}: {error}"
            try:
                connection.sendall(json.dumps({"token": token, "failed": text}).encode() + b"\n")
            except OSError:
                pass
            connection.close()

    # not threading.Thread: its start() waits on a lock that the stopped main thread may hold
    _thread.start_new_thread(run, ())
