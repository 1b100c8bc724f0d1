"""Which optimizer of torch.optim a step ran, by the files of its frames, and the changes that this one accepts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from memdiag.results.finding import Fix
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array

_FOLDER, _WRAPPER = "/torch/optim/", "optimizer.py"
_DYNAMO = "/torch/_dynamo/"
# Classes of torch.optim without a fused kernel, by their file. AdamW's steps are in adam.py.
_UNFUSED = {
    "_adafactor.py": "Adafactor",
    "adadelta.py": "Adadelta",
    "adamax.py": "Adamax",
    "asgd.py": "ASGD",
    "nadam.py": "NAdam",
    "radam.py": "RAdam",
    "rmsprop.py": "RMSprop",
    "rprop.py": "Rprop",
}
_FUSED = ("adam.py", "adamw.py", "sgd.py", "adagrad.py")


def unfused_optimizer(stacks: Stacks, used: Array) -> str:
    """Returns the class of torch.optim whose steps have these stacks, if no fused kernel exists for it, or "".

    Args:
        stacks: The stacks of a trace.
        used: Numbers of stacks; -1 is none.
    """
    files = _files(_paths(stacks, used))
    if files & set(_FUSED):
        return ""
    return next((name for file, name in _UNFUSED.items() if file in files), "")


def is_other_optimizer(stacks: Stacks, used: Array) -> bool:
    """Returns whether steps with these stacks are of an optimizer that takes neither ``fused`` nor ``foreach``.

    PyTorch's wrapper around every step shows that it is an optimizer; a compiled step does not show which one.
    """
    paths = _paths(stacks, used)
    is_compiled = any(_DYNAMO in path for path in paths)
    return _WRAPPER in _files(paths) and not is_compiled and not _files(paths) & {*_FUSED, *_UNFUSED}


def _paths(stacks: Stacks, used: Array) -> set[str]:
    frames = {int(frame) for number in np.unique(used[used >= 0]) for frame in _frames(stacks, int(number))}
    return {stacks.frames[frame].filename.replace("\\", "/") for frame in frames}


def _files(paths: set[str]) -> set[str]:
    """Returns the names of the files of torch.optim among paths."""
    return {path.rpartition("/")[2] for path in paths if _FOLDER in path}


def _frames(stacks: Stacks, number: int) -> Array:
    found: Array = stacks.frame_ids[stacks.offsets[number] : stacks.offsets[number + 1]]
    return found


def for_optimizer(fixes: Iterable[Fix], name: str) -> tuple[Fix, ...]:
    """Returns the remedies for an optimizer without a fused kernel: none that needs one, and others with its name."""
    if not name:
        return tuple(fixes)
    return tuple(
        replace(fix, change=fix.change.replace("torch.optim.AdamW", f"torch.optim.{name}"))
        for fix in fixes
        if "fused" not in fix.change.lower()
    )
