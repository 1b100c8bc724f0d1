"""What a phantom device says of a run: what it is, what is taken for granted, and what the program read back of it.

The first two come from memdiag's launcher, in the environment. The rest is counted by the stand-in in this process, which answers through
one function of C, ``memdiag_phantom_facts``: JSON with ``read_backs`` (copies to the host of what the device would have computed: count,
and the first dozen places in the program), and for CUDA ``refused`` (functions that cannot be imitated and were called all the same).
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any


def phantom_device() -> dict[str, Any] | None:
    """Returns the device that is not there; None: this process runs on none."""
    said = _table(os.environ.get("MEMDIAG_PHANTOM"))
    return None if said is None else {**said, **(_table(_counted()) or {})}


def _counted() -> str | None:
    try:
        ask = ctypes.CDLL(None).memdiag_phantom_facts
        ask.restype = ctypes.c_char_p
        return (ask() or b"").decode("utf-8", "replace")
    except (OSError, AttributeError):  # a stand-in that counts nothing
        return None


def _table(text: str | None) -> dict[str, Any] | None:
    try:
        said = json.loads(text or "null")
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
