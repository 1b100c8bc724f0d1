"""Facts about a run on a simulated device: the device, the assumptions, and values that the program read from it.

The first two come from memdiag's launcher, in the environment. The rest is counted by the simulated runtime in this
process, which returns it through one C function, ``memdiag_phantom_facts``. The JSON has

* ``read_backs``: copies to the host of results that the device would have computed, with their count, the first dozen
  places in the program, and the last one;
* ``assumed_sizes``: sizes that depend on such results, likewise, and the fraction of elements assumed to be selected;
* ``refused``: functions that cannot be simulated but were called.

memdiag's other parts within the program count for themselves: ``computed``, small tensors (``--compute small``),
``experts``, routers with an assumed load (``--expert-load``), and ``timing``, kernels that torch.compile would have
timed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

_COMPUTING = "memdiag_phantom_computing"  # computes small tensors in this process, if requested
_TIMING = "memdiag_phantom_timing"  # keeps torch.compile from timing kernels
END_VARIABLE = "MEMDIAG_PHANTOM_END_WAITS"  # set by --values auto; "1": a program that waits for a value is ended


def phantom_device() -> dict[str, Any] | None:
    """Returns the simulated device, or None if this process uses none."""
    said = _table(os.environ.get("MEMDIAG_PHANTOM"))
    return None if said is None else {**said, **(_table(_counted()) or {}), **_within()}


def synthetic_reads() -> dict[str, int]:
    """Returns how many results of operators each place in the program has read, as far as places are counted."""
    found = (_table(_counted()) or {}).get("read_backs") or {}
    return {str(place["where"]): int(place["count"]) for place in found.get("places") or ()}


def last_synthetic_read() -> dict[str, Any] | None:
    """Returns how many results of operators the program has read so far, where the last one, and as what values.

    ``auto`` says whether memdiag chooses the values itself. None if the program has read no such result.
    """
    found = (_table(_counted()) or {}).get("read_backs") or {}
    if not found.get("count"):
        return None
    values = (_table(os.environ.get("MEMDIAG_PHANTOM")) or {}).get("values")
    is_auto = END_VARIABLE in os.environ
    return {"count": found["count"], "last": str(found.get("last") or ""), "values": values, "auto": is_auto}


def assumed_sizes() -> dict[str, Any] | None:
    """Returns how many sizes were assumed because they depend on results of operators; None for none.

    ``auto`` says whether memdiag chooses the values itself.
    """
    found = (_table(_counted()) or {}).get("assumed_sizes") or {}
    if not found.get("count"):
        return None
    return {"count": found["count"], "last": str(found.get("last") or ""), "auto": END_VARIABLE in os.environ}


def without_computing(content: dict[str, Any]) -> None:
    """Removes the functions that compute small tensors from the call stacks of a snapshot.

    They are between PyTorch and its kernels.
    """
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
    """Returns the counts of memdiag's own parts in this process."""
    parts = {name: sys.modules.get(module) for name, module in (("computed", _COMPUTING), ("timing", _TIMING))}
    found = {name: part.facts() for name, part in parts.items() if part is not None}
    if parts["computed"] is not None:
        found["experts"] = parts["computed"].expert_facts()
    return {name: facts for name, facts in found.items() if facts is not None}


def _counted() -> str | None:
    try:
        ask = ctypes.CDLL(None).memdiag_phantom_facts
        ask.restype = ctypes.c_char_p
        return (ask() or b"").decode("utf-8", "replace")
    except (OSError, AttributeError):  # a simulated runtime without counts
        return None


def _table(text: str | None) -> dict[str, Any] | None:
    try:
        said = json.loads(text or "null")
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
