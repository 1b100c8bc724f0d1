"""What a phantom device says of a run: what it is, what is taken for granted, and what the program read back of it.

The first two come from memdiag's launcher, in the environment. The rest is counted by the stand-in in this process,
which answers through one function of C, ``memdiag_phantom_facts``: JSON with ``read_backs`` (copies to the host of what
the device would have computed: count, and the first dozen places in the program) and ``refused`` (functions that cannot
be imitated and were called all the same). What else memdiag does within the program counts for itself: ``computed``,
small tensors (``--compute small``), and ``timing``, kernels that torch.compile would have timed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

_COMPUTING = "memdiag_phantom_computing"  # what computes small tensors in this process, where that is asked for
_TIMING = "memdiag_phantom_timing"  # what keeps torch.compile from timing kernels


def phantom_device() -> dict[str, Any] | None:
    """Returns the device that is not there; None: this process runs on none."""
    said = _table(os.environ.get("MEMDIAG_PHANTOM"))
    return None if said is None else {**said, **(_table(_counted()) or {}), **_within()}


def without_computing(content: dict[str, Any]) -> None:
    """Takes the functions that compute small tensors out of the call stacks of a snapshot: they stand between PyTorch and its kernels."""
    computing = sys.modules.get(_COMPUTING)
    if computing is None:
        return
    folder = os.path.dirname(os.path.abspath(computing.__file__ or "")) + os.sep
    seen: set[int] = set()  # stacks are shared between entries
    entries = [entry for trace in content.get("device_traces") or () for entry in trace]
    blocks = [block for segment in content.get("segments") or () for block in segment.get("blocks") or ()]
    for holder in (*entries, *blocks, *(content.get("segments") or ())):
        frames = holder.get("frames")
        if frames and id(frames) not in seen:
            seen.add(id(frames))
            if any(frame["filename"].startswith(folder) for frame in frames):
                frames[:] = [frame for frame in frames if not frame["filename"].startswith(folder)]


def _within() -> dict[str, Any]:
    """What memdiag's own parts in this process count."""
    parts = {name: sys.modules.get(module) for name, module in (("computed", _COMPUTING), ("timing", _TIMING))}
    found = {name: part.facts() for name, part in parts.items() if part is not None}
    return {name: facts for name, facts in found.items() if facts is not None}


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
