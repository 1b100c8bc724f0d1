"""Facts about the process that the recorder runs in: its role, its rank, and the error that ended it."""

from __future__ import annotations

import os
import sys


def is_helper() -> bool:
    """Returns whether this process only serves another one: compiles kernels, tracks shared memory, forks children."""
    if is_fork_servers_child():
        return False
    arguments = " ".join(getattr(sys, "orig_argv", sys.argv)[:6])
    return any(
        word in arguments
        for word in ("multiprocessing.resource_tracker", "torch/_inductor/compile_worker", "multiprocessing.forkserver")
    )


def is_fork_servers_child() -> bool:
    """Returns whether the fork server of multiprocessing forked this process, which has the server's arguments.

    The child knows the server's pipe (forkserver.py: _serve_one), the server itself does not.
    """
    if "multiprocessing.forkserver" not in " ".join(getattr(sys, "orig_argv", sys.argv)[:6]):
        return False
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    return getattr(server, "_forkserver_alive_fd", None) is not None


def is_data_worker() -> bool:
    """Returns whether this is a DataLoader worker.

    This is known only once it works: a spawned worker imports torch like any other process.
    """
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None


def last_error() -> str:
    """Returns the name of the exception that ended the program, or "" if none did or it is still running."""
    return getattr(getattr(sys, "last_type", None), "__name__", "")


def number(variable: str) -> int | None:
    """Returns the number in an environment variable, or None if it is not set or not a number."""
    try:
        return int(os.environ[variable])
    except (KeyError, ValueError):
        return None
