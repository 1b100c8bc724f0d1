"""A command that runs programs as Python does, in processes that find torch imported already.

Importing torch and its compiler, which the first optimizer imports, takes longer than most programs of the tests. A
server (server.py) imports them and hides them, calls none of their operators, so that it has no threads, and starts a
copy of itself (fork) for each program. There, ``import torch`` finds the hidden modules. All else is as in a Python
that has just started: environment, open files, ``sitecustomize``, which loads memdiag's recorder, main module, and end.

The command (client.py) gives its open files to the server, passes on signals, and ends as the program does. The program
has another process number and process group than the command. Where Python would have to start in another way than the
server did, as with another LD_PRELOAD, the command becomes the usual Python.
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
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tests.forking import client

_HERE = Path(__file__).resolve().parent
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
    return python_for(sys.executable, os.environ)


def python_for(python: str, environment: Mapping[str, str], *modules: str) -> str:
    """Returns the path of such a command; where processes cannot be copied, that of Python itself.

    Args:
        python: Path of a Python that has torch. Its server starts at the first call, and ends with this process.
        environment: Environment variables of later programs, as far as they matter when Python or a library is loaded.
        modules: Other modules that the server imports.
    """
    if not hasattr(os, "fork"):
        return python
    return _command(python, tuple(client.read_at_start(environment).items()), modules)


@functools.cache
def _command(python: str, at_start: tuple[tuple[str, str], ...], modules: tuple[str, ...]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="memdiag-"))
    (folder / "server.json").write_text(json.dumps({"python": python, "at_start": dict(at_start)}))
    launcher = folder / "python"
    launcher.write_text(_LAUNCHER.format(python=python, here=str(_HERE), folder=str(folder)))
    launcher.chmod(0o755)
    words = [python, str(_HERE / "server.py"), str(folder), "torch", *modules, "torch._dynamo"]
    server = subprocess.Popen(words, env=dict(at_start), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"

    def end() -> None:
        server.communicate()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return str(launcher)
