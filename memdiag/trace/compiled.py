"""The one door to numba: loops over millions of events run compiled, or, where numba is missing, as the plain Python they are.

Compiled code is kept on disk (beside the module, else in numba's user cache), so that only the very first run has to wait for
the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

numba: Any
try:
    import numba
except ImportError:  # slow, but right
    numba = None


def njit(function: F) -> F:
    """Compiles ``function`` with numba, cached on disk; returns it unchanged where numba is missing."""
    if numba is None:
        return function
    compiled: F = numba.njit(cache=True, nogil=True, boundscheck=os.environ.get("NUMBA_BOUNDSCHECK") == "1")(function)
    return compiled


def njit_part(function: F) -> F:
    """Compiles ``function`` as a part of one that ``njit`` keeps on disk: by itself it is not worth a file."""
    if numba is None:
        return function
    compiled: F = numba.njit(nogil=True, boundscheck=os.environ.get("NUMBA_BOUNDSCHECK") == "1")(function)
    return compiled


def is_cold() -> bool:
    """Returns whether the next trace has to wait for the compiler (about 20 s, once per installation)."""
    if numba is None or numba.config.DISABLE_JIT:
        return False
    here = Path(__file__).parent / "__pycache__"
    if numba.config.CACHE_DIR:
        return not any(Path(numba.config.CACHE_DIR).rglob("heap.walk*.nbi"))
    return os.access(here.parent, os.W_OK) and not any(here.glob("heap.walk*.nbi"))
