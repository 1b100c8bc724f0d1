"""Finds the Python that a command will run, through wrappers such as env, nice, timeout, uv run and shell scripts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?(\.exe)?")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed"})
# Programs that run a command in an environment of theirs, with their word "run".
_RUNNERS = frozenset({"uv", "conda", "mamba", "micromamba", "poetry", "pipenv", "pdm", "hatch", "rye", "pixi"})
_LONGEST = 64 << 10  # bytes of a shell script that are read
_MOST_WRAPPERS = 10
_ACTIVATE = re.compile(r"""(?:^|[\s;&(])(?:\.|source)\s+["']?([^\s"';&|]+)/activate\b""", re.MULTILINE)
_PATH_OF_PYTHON = re.compile(
    r"""(?:^|[\s;&|("'])([^\s"';&|()$]*/(?:python|pypy)[0-9.]*t?)(?=[\s"';&|)]|$)""", re.MULTILINE
)
_ASSIGNED_PATH = re.compile(r"""(?:^|[\s;&])PATH=["']?([^\s"';&|]+)""", re.MULTILINE)
_PART = re.compile(r"[\w.+/-]+")
_VARIABLE = re.compile(r"\$(\w+|\{\w+\})")


@dataclass(frozen=True)
class Interpreter:
    """The Python of a command.

    Attributes:
        words: The words that start it.
        environment: Its environment variables, as far as they decide which Python this is.
        is_known: False if the command does not say which Python it runs: then it is the first one on the PATH.
    """

    words: list[str]
    environment: dict[str, str]
    is_known: bool = True


def find_python(command: Sequence[str], environment: Mapping[str, str]) -> Interpreter:
    """Finds the Python of a command.

    A command that is not a Python may be a script of one (torchrun), according to its first line. ``uv run`` and the
    like are asked for their Python. A shell script names the Python that it uses by its path, by the environment that
    it activates, or by a name on the PATH. For another program (env, nice, timeout), the first of its arguments that
    is one of these commands decides. If there is none, this is the first Python on the PATH.

    Raises:
        MemdiagError: No Python was found.
    """
    variables = dict(environment)
    found = _find(list(command), variables, _MOST_WRAPPERS)
    if found:
        return Interpreter(found, variables)
    for candidate in ("python", "python3"):
        if path := _which(candidate, variables):
            return Interpreter([path], variables, is_known=False)
    raise MemdiagError(phrase("phantom.no-python"), phrase("phantom.no-python.hint"))


def _which(name: str, variables: Mapping[str, str]) -> str | None:
    return shutil.which(name, path=variables.get("PATH"))


def _find(words: list[str], variables: dict[str, str], depth: int) -> list[str]:
    """Returns the words that start the Python of a command, or none; changes PATH as the command does."""
    name = _which(words[0], variables) if words and depth else None
    if not name:
        return []
    if _PYTHON.fullmatch(Path(name).name):
        return [name]
    if Path(name).name in _RUNNERS and words[1:2] == ["run"]:
        return _of_runner(name, words)
    line = _first_line(name, variables)
    if any(_PYTHON.fullmatch(Path(word).name) for word in line):
        return line
    if Path(name).name in _SHELLS:
        return _of_shell(words, variables, depth)
    if any(Path(word).name in _SHELLS for word in line) and (found := _of_text(_text(name), variables, depth)):
        return found
    return _of_arguments(words[1:], variables, depth, is_env=Path(name).name == "env")


def _of_arguments(words: list[str], variables: dict[str, str], depth: int, *, is_env: bool) -> list[str]:
    """Returns the Python of the first argument that is a Python, a script of one, a shell or a wrapper of these."""
    for number, word in enumerate(words):
        if is_env and word.startswith("PATH="):
            variables["PATH"] = word.partition("=")[2]
        if "=" in word or word.startswith("-") or Path(word).is_dir():
            continue
        if _which(word, variables):  # it looks through the rest itself
            return _find(words[number:], variables, depth - 1)
    return []


def _of_runner(runner: str, words: Sequence[str]) -> list[str]:
    """Returns the words that start the Python of ``uv run`` or the like, with its options."""
    for number, word in enumerate(words[2:], 2):
        if Path(word).name in _LAUNCHERS:
            return [runner, *words[1:number], "python"]
        if _PYTHON.fullmatch(Path(word).name):
            return [runner, *words[1 : number + 1]]
        if word in {"-m", "--module", "-s", "--script"} or word.endswith(".py"):
            return [runner, *words[1:number], "python"]
    return [runner, "run", "python"]


def _of_shell(words: Sequence[str], variables: dict[str, str], depth: int) -> list[str]:
    """Returns the Python of the text after -c, or of the script that a shell runs."""
    for number, word in enumerate(words[1:-1], 1):
        if not word.startswith("-"):
            break
        if "c" in word and not word.startswith("--"):  # also in -lc
            return _of_text(words[number + 1], variables, depth)
    given = next((word for word in words[1:] if not word.startswith("-")), "")
    return _of_text(_text(given), variables, depth) if given else []


def _of_text(text: str, variables: dict[str, str], depth: int) -> list[str]:
    """Returns the Python that the text of a shell names: by its path, or by a name on the PATH that it sets."""
    folders = [*_ACTIVATE.findall(text)]
    paths = [*_PATH_OF_PYTHON.findall(text), *(f"{folder}/python" for folder in folders)]
    for path in paths:
        if os.access(path, os.X_OK) and not Path(path).is_dir():
            return [path]
    for assigned in _ASSIGNED_PATH.findall(text):
        variables["PATH"] = _expanded(assigned, variables)
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            continue
        for word in _PART.findall(line):
            is_command = Path(word).name in _LAUNCHERS | _RUNNERS or _PYTHON.fullmatch(Path(word).name)
            if is_command and (found := _find(_words_from(line, word), variables, depth - 1)):
                return found
    return []


def _words_from(line: str, word: str) -> list[str]:
    """Returns the words of a line of a shell, from this one on."""
    try:
        return shlex.split(line[line.index(word) :], comments=True)
    except ValueError:  # a quote that ends on another line
        return [word]


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    return os.path.expanduser(_VARIABLE.sub(lambda match: variables.get(match[1].strip("{}"), ""), text))  # noqa: PTH111


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the first bytes
            return file.read(_LONGEST).decode(errors="replace")
    except OSError:
        return ""


def _first_line(path: str, variables: Mapping[str, str]) -> list[str]:
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
        found = _which(words[-1], variables)
        return [found] if found else []
    return words
