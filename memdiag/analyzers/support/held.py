"""Names who holds the tensors of a call site, from the searches of ``memdiag record --holders``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from memdiag.analyzers.support.context import DeviceView
from memdiag.results.finding import Evidence
from memdiag.text import phrase
from memdiag.trace.recorded import held_in
from memdiag.trace.recording import HeldTensor
from memdiag.trace.table import Array

MOST = 2  # holders of one call site
FEW = 3  # tensors of one kind

_SUBSCRIPT = re.compile(r"\[(?:'[^']*'|\d+)\]")
_FOLDER = re.compile(r"(?<=\()[^():]*/")  # of a file in parentheses


def held_by(view: DeviceView, rows: Array) -> Iterator[Evidence]:
    """Yields the holders of tensors: variables that hold them, or a result whose autograd graph retains them.

    Args:
        view: The device.
        rows: Tensors of one call site.
    """
    recorded = view.trace.recorded
    found = held_in(recorded, view.device) if recorded is not None else []
    mine = set(rows.tolist())
    # Fewer tensors of a kind belong to the current step, unless each step collects one of another size.
    direct = [held for row, held in found if row in mine and (held.count > FEW or _is_collected(view, row, held))]
    growing = _growing(held for _, held in found)
    results = [
        held
        for row, held in found
        if not direct and held.num_nodes and held.chains[0] in growing and _retains(view, row, rows)
    ]
    for text, held in list(_chains(direct or results).items())[:MOST]:
        name = phrase("held.by") if direct else phrase("held.graph")
        yield Evidence(name, held.count, "tensors", text)


def _is_collected(view: DeviceView, row: int, held: HeldTensor) -> bool:
    """Returns whether a container holds a tensor that outlives its step and the next one."""
    tensors = view.device.tensors
    is_freed = tensors.free_requested_at[row] < view.device.num_events
    last = int(tensors.step_free[row] if is_freed else view.device.events.step.max())
    return last - int(tensors.step_alloc[row]) > 1 and _SUBSCRIPT.search(held.chains[0]) is not None


def _growing(found: Iterable[HeldTensor]) -> set[str]:
    """Returns the variables whose graphs grow, or were measured only once: a graph of a fixed size is of one step."""
    sizes: dict[str, set[int]] = {}
    marks: dict[str, set[int]] = {}
    for held in found:
        sizes.setdefault(held.chains[0], set()).add(held.num_nodes)
        marks.setdefault(held.chains[0], set()).add(held.mark)
    return {chain for chain, each in sizes.items() if len(marks[chain]) == 1 or len(each) > 1}


def _retains(view: DeviceView, result: int, rows: Array) -> bool:
    """Returns whether the graph of a result can retain tensors: some were live when it was allocated."""
    tensors, made = view.device.tensors, view.device.tensors.alloc_at[result]
    return bool(((tensors.alloc_at[rows] < made) & (tensors.free_requested_at[rows] > made)).any())


def _chains(found: list[HeldTensor]) -> dict[str, HeldTensor]:
    """Returns the shortest chain of each tensor; those that differ only in their subscripts are one."""
    texts: dict[str, list[tuple[str, HeldTensor]]] = {}
    for held in sorted(found, key=lambda held: -held.mark):
        text = _FOLDER.sub("", held.chains[0])
        texts.setdefault(_SUBSCRIPT.sub("[…]", text), []).append((text, held))
    return {
        alike if len({text for text, _ in group}) > 1 else group[0][0]: group[0][1] for alike, group in texts.items()
    }
