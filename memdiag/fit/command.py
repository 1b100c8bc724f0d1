"""The command of one configuration: placeholders replaced, and one rank of it run without its launcher."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.results.fit import GridAxis
from memdiag.text import phrase

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
# Options of torchrun (torch/distributed/run.py) without a value.
_TORCHRUN_FLAGS = frozenset(
    {"standalone", "m", "module", "no-python", "run-path", "signals-to-handle"} - {"signals-to-handle"}
)


def check_placeholders(command: Sequence[str], variables: Mapping[str, str], axes: Sequence[GridAxis]) -> None:
    """Checks that the command or its variables use every axis.

    Raises:
        MemdiagError: An axis is not used.
    """
    used = {name for text in (*command, *variables.values()) for name in _PLACEHOLDER.findall(text)}
    for axis in axes:
        if axis.name not in used:
            raise MemdiagError(
                phrase("fit.error.unused", name=axis.name), phrase("fit.error.unused.hint", name=axis.name)
            )


def filled(text: str, values: Mapping[str, str]) -> str:
    """Returns a text with its placeholders replaced. Braces around other names stay as they are."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


def single_process(command: Sequence[str]) -> tuple[str, ...]:
    """Returns the command of one process of a distributed run: ``torchrun … train.py`` becomes ``python train.py``.

    Commands without a known launcher are returned unchanged.

    Raises:
        MemdiagError: The launcher is known, but one rank cannot be run without it.
    """
    first = Path(command[0]).name
    if first == "torchrun":
        found = shutil.which(command[0])
        python = str(Path(found).with_name("python")) if found else "python"
        return _without_torchrun(python, command[1:])
    if tuple(command[1:3]) in {("-m", "torch.distributed.run"), ("-m", "torch.distributed.launch")}:
        return _without_torchrun(command[0], command[3:])
    if first in {"accelerate", "deepspeed", "mpirun", "srun"}:
        raise MemdiagError(phrase("fit.error.launcher", name=first), phrase("fit.error.launcher.hint"))
    return tuple(command)


def _without_torchrun(python: str, words: Sequence[str]) -> tuple[str, ...]:
    left = list(words)
    is_module = is_program = False
    while left and left[0].startswith("-"):
        name, has_value, _ = left.pop(0).lstrip("-").partition("=")
        name = name.replace("_", "-")
        is_module |= name in {"m", "module"}
        is_program |= name == "no-python"
        if not has_value and name not in _TORCHRUN_FLAGS and left:
            left.pop(0)
    if not left:
        raise MemdiagError(phrase("fit.error.no-script"), phrase("fit.error.no-script.hint"))
    if is_program:
        return tuple(left)
    return (python, "-m", *left) if is_module else (python, *left)
