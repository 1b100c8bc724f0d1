"""The server: a script that imports the modules of its arguments, and runs each program in a copy of itself.

    python server.py SOCKET torch torch._dynamo    # SOCKET is the path of the socket that it makes

It ends when its stdin ends, or if no program has come for a minute.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import select
import signal
import site
import socket
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import client

_HIDDEN = ("torch", "torch_npu")
_IDLE_SECONDS = 60  # without a program, after which a server ends


class _Hidden:
    """A finder of modules that are imported already, but not in ``sys.modules``."""

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}
        self._together: dict[str, list[str]] = {}

    def hide(self, names: Sequence[str]) -> None:
        """Imports modules, and hides them with all that each of them imports."""
        for name in names:
            before = set(sys.modules)
            importlib.import_module(name)
            self._together[name] = [
                each for each in sys.modules if each not in before and each.partition(".")[0] in _HIDDEN
            ]
        for each in [each for together in self._together.values() for each in together]:
            self._modules[each] = sys.modules.pop(each)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        module = self._modules.get(name)
        if module is None:
            return None
        return ModuleSpec(name, _Loader(self, module), is_package=hasattr(module, "__path__"))

    def show(self, name: str) -> None:
        """Puts a module into ``sys.modules``, with what it has imported if it was imported by its name."""
        for each in [name, *self._together.pop(name, ())]:
            module = self._modules.pop(each, None)
            if module is not None:
                sys.modules.setdefault(each, module)


class _Loader:
    def __init__(self, hidden: _Hidden, module: ModuleType) -> None:
        self._hidden, self._module, self._spec = hidden, module, module.__spec__

    def create_module(self, _: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__spec__"] = self._spec  # torch's modules of settings allow no other attribute
        self._hidden.show(module.__name__)


def _next_program(listening: socket.socket) -> tuple[list[str], str, dict[str, str]]:
    """Serves commands until stdin ends; returns the words, folder and environment in each copy of this process."""
    running: dict[socket.socket, int] = {}
    is_replaced = False  # whether another server may start in its place
    ended, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([sys.stdin, listening, ended, *running], [], [], _IDLE_SECONDS)[0]
        if sys.stdin in ready or (is_replaced and not (ready or running)):
            sys.exit()
        if not (ready or running):  # a command may have connected meanwhile: one more round
            is_replaced = True
            for name in (".socket", ".started", ".starting"):
                Path(listening.getsockname()).with_suffix(name).unlink(missing_ok=True)
        if ended in ready:
            os.read(ended, 1 << 10)
            _send_ends(running)
        for connection in running.keys() & set(ready):  # the command was killed
            os.kill(running[connection], signal.SIGKILL)
        if listening in ready:
            connection, _ = listening.accept()
            request, files = client.receive_request(connection)
            child = os.fork()
            if not child:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _take_over(files, [ended, wakeup], [connection, listening, *running])
                return request
            for file in files:
                os.close(file)
            client.send_number(connection, child)
            running[connection] = child


def _send_ends(running: dict[socket.socket, int]) -> None:
    """Sends the status of each program that has ended to its command."""
    for connection, child in list(running.items()):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            client.send_number(connection, os.waitstatus_to_exitcode(status))
            connection.close()
            del running[connection]


def _take_over(files: Sequence[int], others: Sequence[int], sockets: Sequence[socket.socket]) -> None:
    """Makes the files stdin, stdout and stderr, and closes the files and sockets of the server."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in (*files, *others):
        os.close(file)
    for each in sockets:
        each.close()


def _begin(words: list[str], folder: str, environment: dict[str, str]) -> ModuleType:
    """Gives this process the state of a Python that has just started; returns its main module."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv = [sys.executable, *words]
    sys.path[:1] = added = client.added_folders(environment)  # instead of the folder of this file
    if client.SITE in added:
        sys.modules.pop("sitecustomize", None)
        site.execsitecustomize()
    main = ModuleType("__main__")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    sys.argv = words if words[0].endswith(".py") else [words[0], *words[2:]]
    first = {"-c": "", "-m": folder}.get(words[0])
    sys.path.insert(0, str(Path(words[0]).resolve().parent) if first is None else first)
    return main


def _execute(words: list[str], main: ModuleType) -> None:
    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if words[0] == "-c":
        text, name = words[1], "<string>"
    else:
        text, name = Path(words[0]).read_text("utf-8"), os.path.abspath(words[0])
        main.__file__ = name
    exec(compile(text, name, "exec", dont_inherit=True), vars(main))  # noqa: S102 - the program


def _serve(path: str, names: Sequence[str]) -> tuple[list[str], ModuleType]:
    """Imports modules and serves commands; returns the words and the main module in each copy of this process."""
    answers = os.dup(1)
    os.dup2(2, 1)  # some libraries print when they are imported
    hidden = _Hidden()
    hidden.hide(names)
    sys.meta_path.insert(0, hidden)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(16)
        os.write(answers, b"ready\n")
        os.close(answers)
        words, place, environment = _next_program(listening)
    return words, _begin(words, place, environment)


if __name__ == "__main__":
    program = _serve(sys.argv[1], sys.argv[2:])
    try:
        _execute(*program)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - as Python does, without the frames of this file
        error.__traceback__ = error.__traceback__.tb_next.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
