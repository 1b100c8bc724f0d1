"""Finds the Python that a command will run, and its torch, by querying that Python without importing packages."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_SECONDS = 60
_PYTHON = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed"})
_LONGEST = 64 << 10  # bytes of a shell script that are read
_ACTIVATE = re.compile(r"""(?:^|[\s;&(])(?:\.|source)\s+["']?([^\s"';&|]+)/activate\b""", re.MULTILINE)
_PATH_OF_PYTHON = re.compile(
    r"""(?:^|[\s;&|("'])([^\s"';&|()$]*/(?:python|pypy)[0-9.]*)(?=[\s"';&|)]|$)""", re.MULTILINE
)
_QUESTION = """
import json, sys
from importlib import metadata
from importlib.machinery import PathFinder
found = {}
for name in ("torch", "torch_npu"):
    spec = PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        continue
    try:
        version = metadata.version(name)
    except Exception:
        version = ""
    found[name] = {"folder": list(spec.submodule_search_locations)[0], "version": version}
print(json.dumps({"python": sys.executable, "prefix": sys.prefix, "packages": found}))
"""


@dataclass(frozen=True)
class Installed:
    """One Python and its packages.

    Attributes:
        python: Its path.
        packages: For "torch" and "torch_npu", if installed: "folder" and "version".
    """

    python: str
    packages: Mapping[str, Mapping[str, str]]

    def version_of(self, package: str) -> str:
        """Returns the version of a package, or "" if it is not installed."""
        return self.packages[package]["version"] if package in self.packages else ""

    def folder_of(self, package: str) -> str:
        """Returns the folder of a package."""
        return self.packages[package]["folder"]


def installed_for(command: Sequence[str], environment: Mapping[str, str]) -> Installed:
    """Returns the packages installed for the Python that ``command`` runs.

    Raises:
        MemdiagError: No Python was found, or it does not respond.
    """
    python = python_of(command, environment)
    try:
        done = subprocess.run(  # noqa: S603 - the Python that the user is about to run
            [*python, "-c", _QUESTION],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise MemdiagError(
            phrase("phantom.no-run", python=shlex.join(python)),
            phrase("phantom.no-run.hint", python=shlex.join(python)),
        ) from None
    return Installed(answer["python"], answer["packages"])


def python_of(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the words that start the Python of a command.

    A command that is not a Python may be a script of one (torchrun), according to its first line. ``uv run`` is asked
    for its Python. A shell script names the Python that it uses by its path, or by the environment that it activates.
    Anything else is assumed to use the first Python on the PATH.

    Raises:
        MemdiagError: No Python was found.
    """
    path = environment.get("PATH")
    words = list(command)
    if words and Path(words[0]).name == "env":  # env NAME=value python …
        words = [word for word in words[1:] if "=" not in word.partition("/")[0] and not word.startswith("-")]
    name = shutil.which(words[0], path=path) if words else None
    if name and _PYTHON.fullmatch(Path(name).name):
        return [name]
    if name and (line := _first_line(name)) and any(_PYTHON.fullmatch(Path(word).name) for word in line):
        return line
    if name and Path(name).name == "uv" and words[1:2] == ["run"]:
        return _of_uv(name, words)
    if named := _of_shell(name or "", words):
        return [named]
    for candidate in ("python", "python3"):
        if found := shutil.which(candidate, path=path):
            return [found]
    raise MemdiagError(phrase("phantom.no-python"), phrase("phantom.no-python.hint"))


def _of_uv(uv: str, words: Sequence[str]) -> list[str]:
    """Returns the words that start the Python of ``uv run``, with its options."""
    for number, word in enumerate(words[2:], 2):
        if Path(word).name in _LAUNCHERS:
            return [uv, *words[1:number], "python"]
        if _PYTHON.fullmatch(Path(word).name):
            return [uv, *words[1 : number + 1]]
        if word in {"-m", "--module", "-s", "--script"} or word.endswith(".py"):
            return [uv, *words[1:number], "python"]
    return [uv, "run", "python"]


def _of_shell(name: str, words: Sequence[str]) -> str:
    """Returns the Python that a shell script or the text after -c names; "" for none."""
    is_shell = Path(name).name in _SHELLS
    if is_shell and "-c" in words[1:-1]:
        text = words[words.index("-c") + 1]
    else:
        given = next((word for word in words[1:] if not word.startswith("-")), "") if is_shell else name
        line = _first_line(given) if given else []
        if not is_shell and not any(Path(word).name in _SHELLS for word in line):
            return ""
        text = _text(given)
    folders = [*_ACTIVATE.findall(text)]
    paths = [*_PATH_OF_PYTHON.findall(text), *(f"{folder}/python" for folder in folders)]
    return next((path for path in paths if os.access(path, os.X_OK) and not Path(path).is_dir()), "")


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the first bytes
            return file.read(_LONGEST).decode(errors="replace")
    except OSError:
        return ""


def _first_line(path: str) -> list[str]:
    """Returns the words after #! of a script; none for anything else."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a few bytes
            head = file.read(512)
    except OSError:
        return []
    if head[:2] != b"#!":
        return []
    words = os.fsdecode(head[2:].partition(b"\n")[0]).split()
    if words and Path(words[0]).name == "env":
        found = shutil.which(words[-1])
        return [found] if found else []
    return words
