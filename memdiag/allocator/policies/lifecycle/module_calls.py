"""Forward calls of the hooked modules, from the module marks of a recording.

A module mark names the module whose code runs from there on, by its path in the model. The path contains all enclosing
modules: ``decoder.layers.3.mlp`` runs within ``decoder.layers.3``. Early versions of the feature hook every element of
a module list (its name is a number). Later ones hook the whole stack, which is the module that owns the list.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from memdiag.trace.model import DeviceTrace
from memdiag.trace.recorded import place
from memdiag.trace.recording import ProcessMarks

Edge = tuple[int, bool]  # the event that follows it, and whether a call begins or ends there


def edges_of_layers(recorded: ProcessMarks, device: DeviceTrace) -> list[Edge]:
    """Returns where calls of the elements of module lists begin and end, in order; calls may be nested.

    A call begins with a mark of the very module. If activation checkpointing recomputes a part of a layer, it enters
    that part directly, without a mark of the layer. This is not a call of the layer.
    """
    edges: list[Edge] = []
    open_calls: list[str] = []
    is_first = True  # the module that runs at the first mark was entered earlier
    for at, path in _marks(recorded, device):
        wanted = _numbered(path)
        kept = [call for call in open_calls if call in wanted]
        entered = [call for call in wanted if call not in kept and (call == path or is_first)]
        edges += [(at, False)] * (len(open_calls) - len(kept)) + [(at, True)] * len(entered)
        open_calls, is_first = kept + entered, False
    return edges + [(device.num_events, False)] * len(open_calls)


def edges_of_stacks(recorded: ProcessMarks, device: DeviceTrace) -> list[Edge]:
    """Returns where calls of the owners of module lists begin and end.

    If the model itself owns a list, the call lasts from its first element to the last one that runs before the model
    returns. An element that activation checkpointing recomputes in backward is not a call of the owner, because the
    owner is not entered.
    """
    # Marks of deeply nested elements cannot be placed if events have no times, but their names still show the owner.
    owners = {
        owner
        for name in np.unique(recorded.modules["name"]).tolist()
        if name >= 0
        for owner in _owner(recorded.names[name])
    }
    edges: list[Edge] = []
    current: str | None = None
    left_at = -1  # the latest event after which no element of the model's own list was running
    before: str | None = None  # the previous mark; None: this is the first one, and its module was entered earlier
    is_in_model = False
    for at, path in _marks(recorded, device):
        if not before:
            is_in_model = bool(path) and (before is None or not _numbered(path))
        inside = next((owner for owner in owners if owner and (path == owner or path.startswith(owner + "."))), None)
        if before is not None and inside not in {None, current, path}:
            inside = None
        if inside is None and "" in owners and is_in_model:
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
        before = path
    if current is not None:
        edges.append((left_at if left_at >= 0 else device.num_events, False))
    return edges


def with_those_too_deep(layers: list[Edge], stacks: list[Edge], guessed: list[Edge]) -> list[Edge]:
    """Returns calls of layers, plus guessed ones in each call of a stack that shows none.

    Marks of deeply nested calls cannot be placed in recordings whose events have no times. The marks of the same layers
    can be placed when backward recomputes them.

    Args:
        layers: Edges of the layers from marks.
        stacks: Edges of the owners, not nested.
        guessed: Edges of layers from call stacks, not nested.
    """
    begins = np.array([at for at, is_begin in layers if is_begin], np.int64)
    spans = [(begin, end) for (begin, _), (end, _) in zip(stacks[::2], stacks[1::2], strict=True)]
    silent = [(begin, end) for begin, end in spans if np.searchsorted(begins, begin) == np.searchsorted(begins, end)]
    added = [
        (begin, end)
        for (begin, _), (end, _) in zip(guessed[::2], guessed[1::2], strict=True)
        if any(first <= begin < last for first, last in silent)
    ]
    ranked = [(at, 1, is_begin) for at, is_begin in layers]
    ranked += [edge for begin, end in added for edge in ((begin, 2, True), (end, 0, False))]
    return [(at, is_begin) for at, _, is_begin in sorted(ranked, key=lambda edge: edge[:2])]


def _marks(recorded: ProcessMarks, device: DeviceTrace) -> Iterator[tuple[int, str]]:
    """Yields (event, path of the module that runs from there on; "" for none) for all marks that can be placed."""
    where = place(recorded, device, recorded.modules)
    rows = np.flatnonzero(where >= 0)
    for at, name in zip(where[rows].tolist(), recorded.modules["name"][rows].tolist(), strict=True):
        yield at, recorded.names[name] if name >= 0 else ""


def _numbered(path: str) -> list[str]:
    """Returns the modules on a path that are elements of module lists, the outermost first."""
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i, part in enumerate(parts) if part.isdigit()]


def _owner(path: str) -> list[str]:
    """Returns the owner of the outermost list on a path ("": the model itself), if there is a list."""
    numbered = _numbered(path)
    return [".".join(numbered[0].split(".")[:-2])] if numbered else []
