"""A stand-in for torch in tests of how the recorder gets into a process: it has just what the recorder touches, and allocates nothing.

``empty(n)`` tells the stand-in for the profiler of an allocation; ``step()`` is a backward and an optimizer step
without content.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from . import _C, autograd, cuda, nn, optim

__version__ = "2.9.0+fake"
version = SimpleNamespace(cuda=None, hip=None)
backends = SimpleNamespace(cuda=SimpleNamespace(is_built=lambda: False))
_utils = SimpleNamespace()
uint8 = "uint8"
sys.modules[__name__ + ".version"] = version


def empty(num_bytes, **options):
    """Allocates, as far as the recorder can tell."""
    return _C.allocate(num_bytes)


def step():
    """Does what a training step does to the hooks."""
    optimizer = SimpleNamespace(param_groups=[], state={})
    autograd.backward(())
    for hook in optim.optimizer.before.values():
        hook(optimizer, (), {})
    for hook in optim.optimizer.after.values():
        hook(optimizer, (), {})
