"""Lets checks of probability distributions pass if their values were not computed.

``torch.distributions`` and ``torch.normal`` check parameters and samples on the device, and read the answer. A
simulated device does not compute it, so the program would end with an invalid parameter that it does not have. The
check still runs, since it allocates memory; only its answer is true if the device does not know it.

Other conditions stay as they are, because a program may decide by them how much memory it uses.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

CHECKS = {  # by module: the class, or "" for the module itself, and its functions
    "torch": ("", ("normal",)),
    "torch.distributions.distribution": ("Distribution", ("__init__", "_validate_sample")),
    "torch.distributions.geometric": ("Geometric", ("__init__",)),
    "torch.distributions.continuous_bernoulli": ("ContinuousBernoulli", ("__init__",)),
    "torch.distributions.von_mises": ("VonMises", ("sample",)),  # draws until all numbers are accepted
}


def begin(module: Any) -> None:
    """Wraps the functions of a module of ``CHECKS`` that check values; called once it is imported."""
    owner, names = CHECKS[module.__name__]
    for name in names:
        _wrap(getattr(module, owner) if owner else module, name)


def _wrap(owner: Any, name: str) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            return original(*args, **kwargs)
        agree = _agreement()
        agree(1)
        try:
            return original(*args, **kwargs)
        finally:
            agree(-1)

    setattr(owner, name, run)


@functools.cache
def _agreement() -> Callable[[int], Any]:
    """Returns the function that makes conditions that are not known true for this thread, until its call with -1."""
    import ctypes

    # A child may have been started without the simulated runtime.
    return getattr(ctypes.PyDLL(None), "memdiag_phantom_agree", bool)


def _is_compiling() -> bool:
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return bool(getattr(compiler, "is_compiling", bool)())  # since torch 2.3; Dynamo knows the answer of this function
