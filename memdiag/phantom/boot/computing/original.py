"""PyTorch's functions as they were before the program started.

A program may replace them: inside DeepSpeed's ``zero.Init``, ``torch.empty`` returns tensors of another type than was
asked for.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

_kept: Any = None


def keep(torch: Any) -> Any:
    """Returns a copy of the module's contents, and keeps it for ``torch``."""
    global _kept  # noqa: PLW0603 - one module per process
    _kept = SimpleNamespace(**vars(torch))
    return _kept


def torch() -> Any:
    """Returns the copy."""
    return _kept
