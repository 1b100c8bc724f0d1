"""Memory of this process that nothing uses any more."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def return_free_memory() -> None:
    """Returns freed memory to the operating system where the C library keeps it (glibc): a quarter of a large trace.

    Columns of up to 32 MB come from the heap of the C library. It keeps the pages of freed ones for later requests.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # TypeError: Windows has no library of this name
        return None
