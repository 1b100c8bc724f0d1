"""Looks now and then at which live tensors have become more, and notes who holds them: ``memdiag record --holders``.

Looks are made after steps 1, 4, 8, 16 and so on, at an out-of-memory error and at the end. A look counts the live
tensors of each kind (device, type, shape, result of an autograd graph or not). It searches the holders of a few tensors
of the kinds that grew since the previous look. The reader finds each tensor in the trace by its address, and so the
call site that it belongs to.

Tensors that only autograd saved have no variable. So a result whose graph grew is a candidate too, like ``total`` in
``total += loss``.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .guard import contained
from .holders import HolderSearch, all_tensors, storage_key
from .marks import Marks

SECONDS = 0.1  # time limit of a look in the training
LAST_SECONDS = 1.0  # of one when the training has ended or failed
_LAST = frozenset({"oom", "exit", "window", "demand", "signal"})  # reasons to write a file that are worth a look
_MOST_KINDS = 3  # of each sort: those that became more, and those whose graph grew
_MOST_NODES = 3_000  # of the graph of one result
_MOST_GRAPHS = 32  # kinds whose graphs are measured
_FEW = 4  # tensors of a kind: one of them may have a graph that grows, like a sum of losses
_RESULTS = 4  # of a kind whose graphs are measured
_CHAINS = 2  # of one tensor
_MOST_ROWS = 64


class Holding:
    """The looks of one process.

    Args:
        torch: The module torch.
        marks: Receives a mark for each look.
        is_on: Whether to look at all.
    """

    def __init__(self, torch: Any, marks: Marks, *, is_on: bool) -> None:
        self._torch = torch
        self._marks = marks
        self._is_on = is_on
        self._steps = 0
        self._rows: dict[Any, list[dict[str, Any]]] = {}  # by kind: of the latest look that found a holder
        self._before: dict[Any, tuple[int, int]] = {}  # by kind: tensors and graph nodes at the previous look
        self._known: dict[int, Any] = {}  # by id: tensors of the previous look
        self._older: dict[int, Any] = {}  # of the one before
        self._looks: list[float] = []  # seconds that each took
        self._is_complete = True
        self._is_too_slow = False

    def stepped(self, is_recording: bool) -> None:
        """Counts a step, and looks after some of them."""
        if self._is_on and is_recording:
            self._steps += 1
            if self._steps != 2 and not self._steps & (self._steps - 1) and not self._is_too_slow:
                self._look(SECONDS, self._marks.here)

    def content(self, reason: str) -> dict[str, Any]:
        """Returns the findings. Some reasons to write a file call for a last look."""
        if not self._is_on:
            return {}
        if reason in _LAST:  # at a failure, the allocator cannot be asked for its position
            self._look(LAST_SECONDS, self._marks.here if reason != "oom" else lambda: len(self._marks) - 1)
        rows = [row for rows in self._rows.values() for row in rows]
        return {"look_seconds": self._looks, "is_complete": self._is_complete, "rows": rows[-_MOST_ROWS:]}

    @contained
    def _look(self, seconds: float, mark: Callable[[], int]) -> None:
        began = time.perf_counter()
        try:
            self._search(began, seconds, mark)
        finally:
            self._looks.append(time.perf_counter() - began)

    def _search(self, began: float, seconds: float, mark: Callable[[], int]) -> None:
        tensors = all_tensors(self._torch)
        pass_seconds = time.perf_counter() - began
        self._is_too_slow = pass_seconds > 2 * SECONDS  # a step must not wait for even one pass
        kinds: dict[Any, list[Any]] = {}
        for each in tensors:
            kind = _kind(each)
            if kind is not None:
                kinds.setdefault(kind, []).append(each)
        largest = _largest_graphs(kinds, began + pass_seconds + seconds / 8)
        samples = self._samples(kinds, largest) if self._looks else {}
        self._before = {kind: (len(group), largest.get(kind, [None, 0])[1]) for kind, group in kinds.items()}
        self._older, self._known = self._known, {id(each): weakref.ref(each) for each in tensors}
        targets = [each for some in samples.values() for each in some]
        search = HolderSearch(began + seconds, pass_seconds)
        own = (tensors, kinds, largest, samples, targets, search, search.__dict__)
        search.ignored.update(map(id, (*own, *kinds.values(), *largest.values(), *samples.values())))
        try:
            if targets:
                self._is_complete = search.run(targets)
                number = mark()
                for kind, some in samples.items():
                    if rows := [row for each in some for row in _row(each, number, search)]:
                        common = {"count": len(kinds[kind]), "nodes": self._before[kind][1]}
                        self._rows.pop(kind, None)  # the latest comes last
                        self._rows[kind] = [{**row, **common} for row in rows]
        finally:
            search.clear()

    def _samples(self, kinds: dict[Any, list[Any]], largest: dict[Any, list[Any]]) -> dict[Any, list[Any]]:
        """Returns a few tensors of the kinds that grew the most, and the results whose graphs grew the most."""
        more = {kind: len(group) - self._before.get(kind, (0, 0))[0] for kind, group in kinds.items()}
        longer = {kind: found[1] - self._before.get(kind, (0, found[1]))[1] for kind, found in largest.items()}
        grown = sorted((kind for kind in kinds if more[kind] > 0), key=lambda kind: -more[kind] * kinds[kind][0].nbytes)
        results = [kind for kind in grown if kind in largest]
        chosen = {kind: self._stayed(kinds[kind]) for kind in [*grown[:_MOST_KINDS], *results[:_MOST_KINDS]]}
        for kind in sorted(longer, key=lambda kind: -longer[kind])[:_MOST_KINDS]:
            if longer[kind] > 0 and len(kinds[kind]) < _FEW:
                chosen[kind] = largest[kind][:1]
        return chosen

    def _stayed(self, group: list[Any]) -> list[Any]:
        """Returns one or two tensors of a kind: those that came before the previous look and stayed, or else new ones.

        New ones may be those of the current step, which no variable retains.
        """
        new = [each for each in group if not _was_in(self._known, each)] or group
        stayed = [each for each in group if _was_in(self._known, each) and not _was_in(self._older, each)]
        found = stayed or new
        return [found[0], found[-1]][: len(found)]


def _row(tensor: Any, mark: int, search: HolderSearch) -> Iterator[dict[str, Any]]:
    """Yields the row of a tensor, if a variable holds it."""
    chains = sorted({chain for chain in search.chains(tensor) if not chain.startswith("(")}, key=len)
    if chains:
        place = {"device": tensor.device.index or 0, "addr": storage_key(tensor)[1], "mark": mark}
        yield {**place, "chains": chains[:_CHAINS]}


def _was_in(known: dict[int, Any], tensor: Any) -> bool:
    reference = known.get(id(tensor))
    return reference is not None and reference() is tensor


def _kind(tensor: Any) -> Any:
    """Returns the kind of a tensor, or None if it is a parameter or refuses to answer."""
    try:
        if tensor.is_leaf and tensor.requires_grad:
            return None
        return str(tensor.device), tensor.dtype, tuple(tensor.shape), tensor.grad_fn is not None
    except Exception:  # noqa: BLE001 - subclasses of tensors may refuse
        return None


def _largest_graphs(kinds: dict[Any, list[Any]], deadline: float) -> dict[Any, list[Any]]:
    """Returns, by kind, the result with the largest autograd graph, and the number of its nodes."""
    with_graph = sorted((kind for kind in kinds if kind[-1]), key=lambda kind: len(kinds[kind]))
    found = {}
    for kind in with_graph[:_MOST_GRAPHS]:
        measured = [[each, _num_nodes(each, deadline)] for each in kinds[kind][-_RESULTS:]]
        found[kind] = max(measured, key=lambda pair: pair[1])
    return found


def _num_nodes(tensor: Any, deadline: float) -> int:
    """Returns the number of nodes of a tensor's autograd graph; at most ``_MOST_NODES`` are counted."""
    seen = {tensor.grad_fn}
    waiting = [tensor.grad_fn]
    while waiting and len(seen) < _MOST_NODES and time.perf_counter() < deadline:
        for following, _ in waiting.pop().next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return len(seen)
