"""Forward calls of the hooked modules, from the module marks of a recording.

A module mark says whose code runs from here on, by its path in the model. The path tells all that is open: ``decoder.layers.3.mlp`` runs
within ``decoder.layers.3``. Early versions of the feature hook every part of a list of modules (its name is a number); later ones the whole
stack, which is the module that owns the list.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memdiag.trace.model import DeviceTrace
from memdiag.trace.recorded import Recorded

Edge = tuple[int, bool]  # the event before which it stands, and whether a call begins there or ends


def edges_of_layers(recorded: Recorded, device: DeviceTrace) -> list[Edge]:
    """Returns where calls of the parts of lists begin and end, in order; calls may stand within calls."""
    edges: list[Edge] = []
    open_calls: list[str] = []
    for at, path in _marks(recorded, device):
        wanted = _numbered(path)
        shared = 0
        while shared < min(len(wanted), len(open_calls)) and wanted[shared] == open_calls[shared]:
            shared += 1
        edges += [(at, False)] * (len(open_calls) - shared) + [(at, True)] * (len(wanted) - shared)
        open_calls = wanted
    return edges + [(device.num_events, False)] * len(open_calls)


def edges_of_stacks(recorded: Recorded, device: DeviceTrace) -> list[Edge]:
    """Returns where calls of the owners of lists begin and end.

    Of a list that the model itself owns, the call lasts from the first of its parts to the last that runs before the model returns.
    """
    # Parts of a list may be too deep to be placed, where events have no times; their names tell the owner all the same.
    owners = {owner for name in np.unique(recorded.modules["name"]).tolist() if name >= 0 for owner in _owner(recorded.names[name])}
    edges: list[Edge] = []
    current: str | None = None
    left_at = -1  # the latest event at which no part of a list of the model itself ran any more
    for at, path in _marks(recorded, device):
        inside = next((owner for owner in owners if owner and (path == owner or path.startswith(owner + "."))), None)
        if inside is None and "" in owners:
            if _numbered(path):
                inside, left_at = "", -1
            elif current == "":
                left_at = at if left_at < 0 else left_at
                inside = "" if path else None
        if inside != current:
            if current is not None:
                edges.append((left_at if current == "" and left_at >= 0 else at, False))
            if inside is not None:
                edges.append((at, True))
            current, left_at = inside, -1
    if current is not None:
        edges.append((left_at if left_at >= 0 else device.num_events, False))
    return edges


def _marks(recorded: Recorded, device: DeviceTrace) -> Iterator[tuple[int, str]]:
    """Yields (event, path of the module whose code runs from there on; "" for none), as far as they can be placed."""
    where = recorded.place(device, recorded.modules)
    rows = np.flatnonzero(where >= 0)
    for at, name in zip(where[rows].tolist(), recorded.modules["name"][rows].tolist(), strict=True):
        yield at, recorded.names[name] if name >= 0 else ""


def _numbered(path: str) -> list[str]:
    """Returns the modules on a path that are parts of lists, the outermost first."""
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i, part in enumerate(parts) if part.isdigit()]


def _owner(path: str) -> list[str]:
    """Returns the owner of the outermost list on a path ("": the model itself), if there is a list."""
    numbered = _numbered(path)
    return [".".join(numbered[0].split(".")[:-2])] if numbered else []
