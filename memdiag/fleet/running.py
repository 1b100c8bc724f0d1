"""Runs a module of memdiag on a node of an engine, in a process of its own: the action "run" of a task."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def ran(task: Mapping[str, Any], path: str) -> dict[str, int]:
    """Runs ``python -m MODULE PATH`` and waits for its end.

    Args:
        task: ``module``, ``folder`` (working directory), ``output`` (file for stdout and stderr) and ``variables``
            (environment variables to set, because a node does not have those of the command).
        path: Argument of the module.

    Returns:
        ``status`` (exit status, or minus the number of the signal that ended the process) and ``host_bytes`` (peak host
        memory of the largest process).
    """
    environment = {**os.environ, **{str(name): str(value) for name, value in task["variables"].items()}}
    with Path(task["output"]).open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - this Python, with a module of memdiag
            [sys.executable, "-m", str(task["module"]), path],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=task["folder"],
            env=environment,
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {"status": process.returncode, "host_bytes": used.ru_maxrss * 1024}
