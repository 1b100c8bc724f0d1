"""The tools of ``memdiag mcp``: short answers for agents, from the same commands that people run.

Each tool runs a command of memdiag in a process of its own, so its output cannot disturb the protocol on stdout. An
answer is cut at LONGEST characters, which are at most 2,000 tokens, and ends with the command that prints everything.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from memdiag.cli import agent_answers
from memdiag.errors import COULD_NOT, MemdiagError
from memdiag.text import phrase

LONGEST = 5600  # characters: 2.8 for a token, which is few for English text and code
SECONDS = 600  # time limit of a tool


def explain_oom(message: str, trace: str = "") -> str:
    """Explain an out-of-memory error: its cause, what to try first, and who held the memory.

    Args:
        message: The text of the error, or the path of a log that contains it.
        trace: Path of a memory trace of the same run, which shows the lines that held the memory.
    """
    more = [f"--from-trace={trace}"] if trace else []
    if os.path.isfile(message):  # noqa: PTH113 - a message is too long for a path: False instead of an error
        return _answer(["oom", *more, "--", message])
    return _answer(["oom", *more, "-"], message)


def analyze(trace: str, at: str = "") -> str:
    """Explain which tensors and lines of code filled the memory in a trace, and suggest fixes.

    Args:
        trace: Path of a trace or of a run directory.
        at: The moment: "oom", "peak", "allocated", "reserved", "end" or an event number. Default: the failed
            allocation, else the peak.
    """
    found, words = _analyzed(trace, at, 10)
    return _cut("\n".join(agent_answers.report(found)), words)


def largest_tensors(trace: str, top: int = 10, at: str = "") -> str:
    """List the lines of code whose live tensors hold most memory, with their callers and tensor names.

    Args:
        trace: Path of a trace or of a run directory.
        top: Number of lines, at most 50.
        at: The moment, as for analyze.
    """
    found, words = _analyzed(trace, at, min(max(top, 1), 50))
    return _cut("\n".join(agent_answers.largest(found)), words)


def _analyzed(trace: str, at: str, top: int) -> tuple[dict[str, Any], list[str]]:
    """Returns the output of ``memdiag analyze --json``, and the words of the command for people."""
    words = ["analyze", f"--top={top}", *([f"--at={at}"] if at else []), "--", trace]
    found: dict[str, Any] = json.loads(_run([words[0], "--json", *words[1:]]))
    return found, ["analyze", "--full", *words[1:]]


def simulate(trace: str, conf: str = "", capacity: str = "") -> str:
    """Predict the memory of a recorded run with other allocator settings or on another device.

    Args:
        trace: Path of a trace.
        conf: Allocator settings, for example "expandable_segments:True".
        capacity: Memory of the device, for example "48GiB".
    """
    given = [f"--{name}={value}" for name, value in (("conf", conf), ("capacity", capacity)) if value]
    return _answer(["simulate", *given, "--", trace])


def tune(trace: str, seconds: int = 30) -> str:
    """Find the allocator settings with which a recorded run needs the least memory.

    Args:
        trace: Path of a trace or of a run directory.
        seconds: Time limit of the search.
    """
    return _answer(["tune", f"--budget-seconds={seconds}", "--", trace])


def fit(command: str, devices: str, grid: str) -> str:
    """Find which configurations of a training command fit on a device, without that device. Runs the command.

    Args:
        command: The command with placeholders, for example "python train.py --batch {batch}".
        devices: Devices, for example "cuda:h100-80g,npu:910b-64g".
        grid: Values of the placeholders, for example "batch=1..64".
    """
    words = [f"--grid={axis}" for axis in grid.split()]
    return _answer(["fit", "--quiet", f"--device={devices}", *words, "--", *shlex.split(command)])


TOOLS = (explain_oom, analyze, largest_tensors, simulate, tune, fit)


def _answer(words: Sequence[str], text: str = "") -> str:
    return _cut(_run(words, text), words)


def _run(words: Sequence[str], text: str = "") -> str:
    """Returns the output of a command.

    Raises:
        MemdiagError: The command failed, with its own error and hint; or it took too long.
    """
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-P", "-m", "memdiag", *words]
    try:
        done = subprocess.run(  # noqa: S603 - memdiag itself
            command, input=text, env=environment, capture_output=True, encoding="utf-8", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise MemdiagError(phrase("mcp.slow", seconds=str(SECONDS), command=_shown(words))) from None
    if done.returncode >= COULD_NOT or done.returncode < 0:
        said = [line for line in done.stderr.splitlines() if line.startswith(("error:", "hint:"))]
        raise MemdiagError("\n".join(said) or done.stderr[-LONGEST:])
    return done.stdout


def _cut(output: str, words: Sequence[str]) -> str:
    """Returns the beginning of an answer, in whole lines, with a pointer to the rest."""
    schema = f"memdiag explain json describes the keys of {words[0]} --json"
    more = f"\nAll of it: {_shown(words)}\nFor programs: add --json ({schema})"
    room = LONGEST - len(more) - 50  # for the line that counts the rest
    if len(output) + len(more) > LONGEST:
        kept = output[:room].rpartition("\n")[0]
        output = f"{kept}\n… ({len(output) - len(kept)} more characters)"
    return output.rstrip() + more


def _shown(words: Sequence[str]) -> str:
    line = f"memdiag {shlex.join(words)}"
    return line if len(line) <= 300 else f"{line[:300]} …"
