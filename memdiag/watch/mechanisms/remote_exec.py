"""``sys.remote_exec`` of Python 3.14 and later: Python itself runs a file in another process of the same version.

The program file of the process runs the call, so memdiag's own Python may be of another version.
"""

from __future__ import annotations

import subprocess

from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.watch.door import Door
from memdiag.watch.target import Target

from .permission import refusal

NAME = "remote_exec"
_FIRST = 14  # minor version
_CALL = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"


def can_enter(target: Target) -> bool:
    """Returns whether the Python of the process is new enough."""
    return target.minor is not None and target.minor >= _FIRST


def enter(target: Target, door: Door) -> None:
    """Lets the process run the file of the door.

    Raises:
        MemdiagError: The system or the process forbids it.
    """
    command = [target.program, "-I", "-S", "-c", _CALL, str(target.pid), str(door.script)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=door.seconds, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MemdiagError(phrase("watch.remote-exec", pid=f"{target.pid}", error=str(error))) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["?"])[-1]
        if "PermissionError" in last or "permission" in last.lower():
            raise refusal(target)
        raise MemdiagError(
            phrase("watch.remote-exec", pid=f"{target.pid}", error=last), phrase("watch.remote-exec.hint")
        )
