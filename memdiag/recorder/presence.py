"""Notes that a process used torch, recorded or not, so that an empty recording can be explained.

It writes one small file .processes/<pid>.json in the folder of the run, when torch is imported and again when Python
ends. A process with only the first ended without Python's shutdown: os._exit, a signal, a crash.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Any

from . import guard, private, process, session
from .files import write_json
from .phantom_facts import assumed_sizes, last_synthetic_read

FOLDER = ".processes"
_MOST = 4000  # characters of an exception's text
_begun: dict[str, Any] = {}


@guard.contained
def imported(module: Any) -> None:
    """Notes that the program has imported torch; called after the session has started."""
    current = session.current()
    if module.__name__ != "torch" or current is None or _begun:
        return
    _begun.update(
        {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "argv": private.arguments(getattr(sys, "orig_argv", sys.argv)),
            "executable": sys.executable,
            "python_version": sys.version.split()[0],
            "torch_version": str(module.__version__),
            "rank": os.environ.get("RANK"),
            "began": time.time(),
            "initialised_before": _initialised(module),
            "ended": None,
        }
    )
    _write(current.config.folder)
    atexit.register(_end, module)
    if "--multiprocessing-fork" in _begun["argv"]:  # multiprocessing spawned it
        _watch_data_worker(current.config.folder)


def _watch_data_worker(folder: str) -> None:
    """Notes if this process becomes a DataLoader worker.

    It does so when its work begins, because PyTorch ends a worker without Python's shutdown when its parent sends
    SIGTERM (DataLoader.cpp: handler_SIGTERM).
    """
    signals: Any = sys.modules.get("torch.utils.data._utils.signal_handling")
    begin = getattr(signals, "_set_worker_signal_handlers", None)
    if begin is None:
        return

    def begin_work() -> None:
        _begun["data_worker"] = True
        guard.contained(_write)(folder)
        begin()

    signals._set_worker_signal_handlers = begin_work


@guard.contained
def _end(torch: Any) -> None:
    """Notes how the process ended; the session ends first, so that its warnings are included."""
    current = session.current()
    if current is None or _begun.get("pid") != os.getpid():  # in a child of fork
        return
    current.end()
    _begun.update(
        {
            "data_worker": process.is_data_worker(),
            "ended": time.time(),
            "initialised": _initialised(torch),
            "devices": _devices(torch),
            "steps": current.training.steps,
            "said": guard.said(),
            "exception": _exception(),
            "synthetic": last_synthetic_read(),
            "assumed_sizes": assumed_sizes(),
        }
    )
    _write(current.config.folder)


def _write(folder: str) -> None:
    if folder:
        write_json(os.path.join(folder, FOLDER, f"{_begun['pid']}.json"), dict(_begun))


def _initialised(torch: Any) -> list[str]:
    """Returns the accelerators in use, without initialising one."""
    found = []
    for name in ("cuda", "npu"):
        part = sys.modules.get("torch.cuda") if name == "cuda" else getattr(torch, "npu", None)
        ask = getattr(part, "is_initialized", None)
        if ask is not None and ask():
            found.append(name)
    return found


def _devices(torch: Any) -> list[str]:
    names = []
    for backend in _initialised(torch):
        part = getattr(torch, backend)
        names += [f"{backend}:{index} {part.get_device_name(index)}" for index in range(part.device_count())]
    return names


def _exception() -> str | None:
    """Returns the exception that ended the program, if any: Python keeps the last uncaught one."""
    error = getattr(sys, "last_value", None)
    return None if error is None else f"{type(error).__module__}.{type(error).__qualname__}: {error}"[:_MOST]
