"""Facts about the process that the recorder runs in: its role, its rank, and the error that ended it."""

from __future__ import annotations

import os
import re
import sys

# Errors of a call or an import that fits another version of a library.
_OF_CODE = re.compile(
    r"(ModuleNotFoundError|ImportError|NameError|SyntaxError|IndentationError)\b"
    r"|TypeError: .*\b(got an unexpected keyword argument|missing \d+ required )"
    r"|TypeError: .*\btakes (from \d+ to )?\d+ positional argument"
    r"|AttributeError: module '"
)


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


def is_of_code(exception: str) -> bool:
    """Returns whether an error comes from the code alone, whatever the values of its tensors are.

    Args:
        exception: Class and text of the exception, such as "builtins.TypeError: f() got an unexpected …".
    """
    return _OF_CODE.match(exception.removeprefix("builtins.")) is not None


def last_error_is_of_code() -> bool:
    """Returns whether the exception that ended the program comes from its code alone."""
    return is_of_code(f"{last_error()}: {getattr(sys, 'last_value', '')}")


def number(variable: str) -> int | None:
    """Returns the number in an environment variable, or None if it is not set or not a number."""
    try:
        return int(os.environ[variable])
    except (KeyError, ValueError):
        return None
