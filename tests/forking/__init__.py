"""Commands that run programs as Python does, in processes that find libraries imported already.

Importing torch and its compiler, which the first optimizer imports, takes longer than most programs of the tests. A
server (server.py) imports them and hides them, calls none of their operators, so that it has no threads, and starts a
copy of itself (fork) for each program. There, ``import torch`` finds the hidden modules. All else is as in a Python
that has just started: environment, open files, ``sitecustomize``, which loads memdiag's recorder, main module, and end.

The command (client.py) gives its open files to the server, passes on signals, and ends as the program does. The program
has another process number and process group than the command. A program for which Python or a library would start in
another way, as with another LD_PRELOAD, needs another server. The command starts a server for the second such program,
and becomes the usual Python for the first, or if it has started several servers already.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_OPEN: list[int] = []
_LAUNCHER = """#!{python} -IS
import sys
sys.path.insert(0, {here!r})
import client
client.main({folder!r})
"""


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """Runs the text of a program as ``python -c`` does; the test is skipped where torch is not installed."""
    return _run(["-c", program], ".")


def run_script(path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in its folder; the test is skipped where torch is not installed."""
    return _run([path.name], path.parent)


def _run(words: list[str], folder: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python_with_torch(), *words], cwd=folder, capture_output=True, text=True, check=False)


def python_with_torch() -> str:
    """Returns such a command for the Python that runs the tests, or skips the test if it has no torch."""
    if find_spec("torch") is None:
        import pytest

        pytest.skip("needs torch")
    return python_for(sys.executable)


def python_for(python: str, *modules: str) -> str:
    """Returns the path of such a command for a Python that has torch; its servers also import the modules."""
    return _command(python, "torch", *modules, "torch._dynamo")


def memdiag_command() -> list[str]:
    """Returns the beginning of a command of memdiag that finds the libraries of its reports imported already."""
    return [_command(sys.executable, "numba", "pandas", "typer", "rich.console", "rich.table"), "-m", "memdiag"]


@functools.cache
def _command(python: str, *modules: str) -> str:
    """Returns the path of a command that runs programs; where processes cannot be copied, that of Python itself.

    Its servers end with this process.
    """
    if not hasattr(os, "fork"):
        return python
    folder = Path(tempfile.mkdtemp(prefix="memdiag-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    alive = folder / "alive"  # servers read it, and end when nobody has it open to write
    os.mkfifo(alive)
    _OPEN.append(os.open(alive, os.O_RDWR))
    words = [python, str(_HERE / "server.py"), *modules]
    (folder / "server.json").write_text(json.dumps(words))
    launcher = folder / "python"
    launcher.write_text(_LAUNCHER.format(python=python, here=str(_HERE), folder=str(folder)))
    launcher.chmod(0o755)
    return str(launcher)
