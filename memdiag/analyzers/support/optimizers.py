"""Which optimizer of torch.optim a step ran, by the files of its frames, and the lines of remedies for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from memdiag.results.finding import Fix
from memdiag.trace.model import Trace
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array

_FOLDER, _WRAPPER = "/torch/optim/", "optimizer.py"
_DYNAMO = "/torch/_dynamo/"
# Classes of torch.optim by their file, those with a fused kernel first. Adam and AdamW share their steps.
_FUSED = {"adam.py": "AdamW", "adamw.py": "AdamW", "sgd.py": "SGD", "adagrad.py": "Adagrad"}
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
_NAMES = frozenset({"Adam", *_FUSED.values(), *_UNFUSED.values()})
IN_8_BITS = frozenset({"Adagrad", "Adam", "AdamW", "RMSprop", "SGD"})  # of bitsandbytes
_FUSED_ON_NPU = frozenset({"Adadelta", "Adam", "AdamW", "RMSprop", "SGD"})  # of torch_npu


def optimizer_of(trace: Trace, used: Array) -> str:
    """Returns the class of torch.optim whose steps have these stacks, or "" if unknown.

    Args:
        trace: The trace. A recording that failed in its first step knows the classes, so it tells Adam from AdamW.
        used: Numbers of stacks; -1 is none.
    """
    noted = {each.name for each in trace.recorded.ended.optimizers} if trace.recorded is not None else set()
    if len(noted) == 1 and noted <= _NAMES:
        return noted.pop()
    files = _files(_paths(trace.stacks, used))
    return next((name for file, name in {**_FUSED, **_UNFUSED}.items() if file in files), "")


def has_fused_kernel(name: str) -> bool:
    """Returns whether a class of torch.optim has a fused kernel for CUDA; True for ""."""
    return name not in _UNFUSED.values()


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
    """Returns remedies whose lines are for AdamW with another class of torch.optim in them ("": unchanged).

    A fused kernel that this class does not have is left out. If bitsandbytes lacks the class, its AdamW remains.
    """
    if not name:
        return tuple(fixes)
    changed = []
    for fix in fixes:
        line = fix.change.replace("torch.optim.AdamW", f"torch.optim.{name}")
        if name in IN_8_BITS:
            line = line.replace(".AdamW8bit", f".{name}8bit")
        if name in _FUSED_ON_NPU:
            line = line.replace("NpuFusedAdamW", f"NpuFused{name}")
        is_missing = not has_fused_kernel(name) if "fused=" in line else "NpuFused" in line and name not in line
        if not is_missing:
            changed.append(replace(fix, change=line))
    return tuple(changed)
