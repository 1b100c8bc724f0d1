"""Lets checks of probability distributions pass if their values were not computed.

``torch.distributions`` and ``torch.normal`` check parameters and samples on the device, and read the answer. A
simulated device does not compute it, so the program would end with an invalid parameter that it does not have. The
check still runs, since it allocates memory; only its answer is true if the device does not know it.

Other conditions stay as they are, because a program may decide by them how much memory it uses.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

_CHECKS = {  # where, what and which functions
    "torch": ("", ("normal",)),
    "torch.distributions.distribution": ("Distribution", ("__init__", "_validate_sample")),
    "torch.distributions.geometric": ("Geometric", ("__init__",)),
    "torch.distributions.continuous_bernoulli": ("ContinuousBernoulli", ("__init__",)),
    "torch.distributions.von_mises": ("VonMises", ("sample",)),  # draws until all numbers are accepted
}


def begin(module: Any) -> None:
    """Wraps the functions of a module that check values: one of ``torch.distributions``, or torch itself."""
    owner, names = _CHECKS[module.__name__]
    for name in names:
        _wrap(getattr(module, owner) if owner else module, name)


def _wrap(owner: Any, name: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            return original(*args, **kwargs)
        _agree(1)
        try:
            return original(*args, **kwargs)
        finally:
            _agree(-1)

    setattr(owner, name, run)


def _agree(change: int) -> None:
    """Makes conditions that are not known true for this thread, until the same call with -1."""
    agree = getattr(ctypes.PyDLL(None), "memdiag_phantom_agree", None)
    if agree is not None:  # otherwise this is a child that was started without the simulated runtime
        agree(change)


def _is_compiling() -> bool:
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return bool(getattr(compiler, "is_compiling", bool)())  # since torch 2.3; Dynamo knows the answer of this function
