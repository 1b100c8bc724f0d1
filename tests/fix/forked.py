"""Runs short programs with torch, each in a process of its own that has imported torch already.

Importing torch takes longer than such a program. One server imports it, and starts a copy of itself (fork) for each
program; it calls no operator of torch itself, so that it has no threads when it forks.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pytest


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """Runs the text of a program as ``python -c`` does; the test is skipped where torch is not installed."""
    return _run(["-c", program], ".")


def run_script(path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in its folder; the test is skipped where torch is not installed."""
    return _run([path.name], path.parent)


def _run(words: list[str], folder: Path | str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("torch")
    if not hasattr(os, "fork"):
        return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
    server = _server()
    server.stdin.write(json.dumps([words, str(folder)]) + "\n")
    server.stdin.flush()
    status, out, err = json.loads(server.stdout.readline())
    return subprocess.CompletedProcess(["python", *words], status, out, err)


@functools.cache
def _server() -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.fix.forked"]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def _serve() -> None:
    import torch
    import torch._dynamo  # an optimizer imports it

    assert torch is not None
    for line in sys.stdin:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if not child:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                _execute(*json.loads(line))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
        print(json.dumps([status, *texts]), flush=True)


def _execute(words: list[str], folder: str) -> None:
    """Executes ``python`` with these words in a folder, and ends this process."""
    status = 0
    os.chdir(folder)
    sys.argv, sys.path[0] = words[:1], str(Path.cwd())
    text, name = (
        (words[1], "<string>") if words[0] == "-c" else (Path(words[0]).read_text(), str(Path(words[0]).resolve()))
    )
    scope = {"__name__": "__main__", "__file__": name, "__builtins__": __builtins__}
    try:
        exec(compile(text, name, "exec"), scope)  # noqa: S102
    except BaseException:  # noqa: BLE001
        status = 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve()
