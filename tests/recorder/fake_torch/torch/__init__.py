"""A fake torch for tests of how the recorder is loaded: it has only the attributes that the recorder uses.

It allocates no memory. ``empty(n)`` reports an allocation to the fake profiler, and ``step()`` calls an empty backward
and the optimizer hooks.
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
    """Reports an allocation to the fake profiler and returns its address."""
    return _C.allocate(num_bytes)


optimizer = SimpleNamespace(param_groups=[], state={})


def step():
    """Calls the hooks that a training step calls."""
    autograd.backward(())
    for hook in optim.optimizer.before.values():
        hook(optimizer, (), {})
    for hook in optim.optimizer.after.values():
        hook(optimizer, (), {})
