"""Detects commands that the recorder cannot reach, from the command alone, before it runs.

The recorder is loaded through PYTHONPATH. Python ignores it with -I and -E, and loads no sitecustomize with -S. The
programs named here start their processes in a separate environment.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(t|d|td)?(\.exe)?")
_WITH_VALUE = {"-W", "-X", "--check-hash-based-pycs"}
_ELSEWHERE = {
    "sudo": (
        "sudo does not hand on the environment: use sudo memdiag record …, or sudo "
        "--preserve-env=PYTHONPATH,MEMDIAG_RECORD"
    ),
    "doas": "doas does not hand on the environment: put memdiag record behind it",
    "docker": "the container has an environment of its own: put memdiag record inside it",
    "podman": "the container has an environment of its own: put memdiag record inside it",
    "ssh": "the other machine has an environment of its own: put memdiag record behind ssh",
    "kubectl": "the pod has an environment of its own: put memdiag record inside it",
}


def out_of_reach(command: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """Returns why nothing below a command can be recorded, or "" if no obstacle is known."""
    words = _without_env(command)
    if not words:
        return ""
    name = os.path.basename(words[0])
    if name in _ELSEWHERE and not (
        name == "sudo" and any(w.startswith("--preserve-env") or w == "-E" for w in words[1:4])
    ):
        return _ELSEWHERE[name]
    if _PYTHON.fullmatch(name):
        return _isolated(words[1:])
    first = _first_line(words[0], environment)
    if first:
        script = _without_env(first)
        if script and _PYTHON.fullmatch(os.path.basename(script[0])) and (why := _isolated(script[1:])):
            return f"{words[0]} begins with #!{' '.join(first)}, and {why}"
    return ""


def _isolated(options: Sequence[str]) -> str:
    """Returns why a Python with these options does not load the recorder."""
    rest = iter(options)
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, None)
        elif word.startswith("--") and len(word) > 2:
            continue
        elif not word.startswith("-") or word in {"-", "--"}:
            break
        else:
            letters = re.split("[cmWX]", word[1:], maxsplit=1)[0]
            for letter in letters:
                if letter in "IE":
                    return (
                        f"python -{letter} ignores PYTHONPATH, which memdiag comes by: leave it out for the recording"
                    )
                if letter == "S":
                    return "python -S loads no sitecustomize, which memdiag comes by: leave it out for the recording"
            if re.search("[cm]", word[1:]):
                break
    return ""


def _without_env(command: Sequence[str]) -> list[str]:
    """Returns a command without a leading ``env`` or similar program."""
    words = list(command)
    while words:
        name = os.path.basename(words[0])
        if name == "env":
            words = words[1:]
            while words and (words[0].startswith("-") or "=" in words[0]):
                if words[0].startswith("-S") and len(words[0]) > 2:
                    words[0] = words[0][2:]
                    break
                words = words[1:]
        elif name in {"nohup", "exec", "time", "setsid", "stdbuf", "nice", "ionice"}:
            words = words[1:]
            while words and (words[0].startswith("-") or words[0].isdigit()):
                words = words[1:]
        else:
            break
    return words


def _first_line(name: str, environment: Mapping[str, str]) -> list[str]:
    """Returns the words after #! in the file of a command."""
    path = name if os.sep in name else shutil.which(name, path=environment.get("PATH"))
    try:
        with open(path or "", "rb") as file:
            head = file.read(256)
    except (OSError, ValueError):
        return []
    return head[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split() if head.startswith(b"#!") else []
