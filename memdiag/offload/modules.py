"""When the code of each module runs.

In forward, this comes from the recorder's marks, in backward from frees of its block's tensors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from memdiag.offload.passes import BACKWARD, FORWARD, Passes
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.recorded import module_at
from memdiag.trace.table import Array

_OF = re.compile(r"(?:(?:grad|[a-z_0-9]+) of )?(\S+)$")
_FIRSTS, _ALL = " first of each", " all"  # suffixes of keys in ``blocks``, which no block name contains
_SAVED = schema.LIFETIMES.index("forward_to_backward")


@dataclass(frozen=True)
class Modules:
    """Execution times of modules.

    Attributes:
        names: Names in the trace (``Trace.strings``).
        paths: Paths of modules; numbers below are indices into it.
        spans: By path, including the paths of containing modules: rows (first event, event after the last) in order.
        blocks: By outermost numbered part ("layers.3"): events at which its forward tensors are freed in backward, in
            order.
    """

    names: tuple[str, ...]
    paths: tuple[str, ...]
    spans: dict[str, Array]
    blocks: dict[str, Array]
    _in_backwards: dict[str, Array] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, trace: Trace, device: DeviceTrace) -> Modules:
        """Infers execution times from the marks and names of a recording; without those, the result is empty."""
        names = trace.strings
        spans = _spans(trace, device) if trace.recorded is not None else {}
        tensors = device.tensors
        rows = np.flatnonzero(
            (tensors.lifetime == _SAVED) & (tensors.name >= 0) & (tensors.free_requested_at < device.num_events)
        )
        block_of = {int(name): block_of_activation(names[name]) for name in np.unique(tensors.name[rows]).tolist()}
        freed: dict[str, list[int]] = {}
        for name, at in zip(tensors.name[rows].tolist(), tensors.free_requested_at[rows].tolist(), strict=True):
            if block_of[name]:
                freed.setdefault(block_of[name], []).append(at)
        paths = dict.fromkeys(module_of_name(name) for name in names)
        return cls(names, tuple(paths), spans, {block: np.sort(np.array(at, np.int64)) for block, at in freed.items()})

    def of_tensors(self, device: DeviceTrace, rows: Array) -> Array:
        """Returns the number of each tensor's module, or -1 if unknown."""
        number = {path: i for i, path in enumerate(self.paths)}
        of_name = np.array([number[module_of_name(name)] for name in self.names] + [-1], np.int64)
        name = device.tensors.name[rows]
        return np.where(name >= 0, of_name[name], -1)

    def uses(self, number: int, passes: Passes) -> Array:
        """Returns when a module's parameters are needed in forward and backward.

        A row has the first event, and the event after the last.
        """
        path = self.paths[number] if number >= 0 else ""
        forward = passes.phase == FORWARD
        block = _numbered(path)
        if block not in self._in_backwards:
            backward = passes.phase == BACKWARD
            self._in_backwards[block] = self._in_backward(block, passes.begin[backward], passes.end[backward])
        return np.concatenate(
            [self._in_forward(path, passes.begin[forward], passes.end[forward]), self._in_backwards[block]]
        )

    def _in_forward(self, path: str, begin: Array, end: Array) -> Array:
        """Returns the event ranges of a module in forward.

        If marks show no code of the module in a pass, those of its containing module are used, else the whole pass.
        """
        found = np.stack([begin, end], axis=1)
        left = np.ones(len(begin), bool)
        while path and left.any():
            spans = self.spans.get(path)
            if spans is not None:
                first, last = np.searchsorted(spans[:, 1], begin, side="right"), np.searchsorted(spans[:, 0], end)
                hit = left & (last > first)
                found[hit, 0] = np.maximum(spans[first[hit], 0], begin[hit])
                found[hit, 1] = np.minimum(spans[last[hit] - 1, 1], end[hit])
                left &= ~hit
            path = path.rpartition(".")[0]
        return found

    def _in_backward(self, block: str, begin: Array, end: Array) -> Array:
        """Returns the event range of a module in each backward pass.

        It is from the first free of the previous block to the first free of the next one, or without frees the whole
        pass.
        """
        found = np.stack([begin, end], axis=1)
        own = self.blocks.get(block)
        if own is None or not len(begin):
            return found
        first, last = _first_and_last(own, begin, end)
        has = first < end
        # Beginning with the previous block: its parameters and this one's overlap.
        earlier = np.where(self._firsts(begin, end) < first, self._firsts(begin, end), begin)
        after = np.append(self._all_frees(), np.iinfo(np.int64).max)[
            np.searchsorted(self._all_frees(), last, side="right")
        ]
        found[has, 0] = np.maximum(earlier.max(axis=0, initial=0), begin)[has]
        found[has, 1] = np.minimum(np.where(after < end, after, end) + 1, end)[has]
        return found

    def _firsts(self, begin: Array, end: Array) -> Array:
        """Returns the first free of each block in each pass, or the end of the pass if it has none."""
        if _FIRSTS not in self._in_backwards:
            self._in_backwards[_FIRSTS] = np.stack([_first_and_last(at, begin, end)[0] for at in self.blocks.values()])
        return self._in_backwards[_FIRSTS]

    def _all_frees(self) -> Array:
        if _ALL not in self._in_backwards:
            self._in_backwards[_ALL] = np.sort(np.concatenate(list(self.blocks.values())))
        return self._in_backwards[_ALL]


def module_of_name(name: str) -> str:
    """Returns the module path in a tensor's name: "layers.3.mlp" for "grad of layers.3.mlp.weight", or ""."""
    if name.endswith(")") and " (" in name:
        return name.partition(" (")[0].rpartition(" ")[2]
    match = _OF.fullmatch(name)
    return match.group(1).rpartition(".")[0] if match and "." in match.group(1) else ""


def module_of_activation(name: str) -> str:
    """Returns the module path of an activation's name, or "".

    It is "layers.3.mlp" for "layers.3.mlp (gelu)" or "layers.3.mlp".
    """
    path = name.partition(" (")[0]
    return "" if " " in path or ":" in path else path


def block_of_activation(name: str) -> str:
    """Returns the outermost numbered part of that module ("layers.3"), or ""."""
    return _numbered(module_of_activation(name))


def _numbered(path: str) -> str:
    parts = path.split(".")
    return next((".".join(parts[: i + 1]) for i, part in enumerate(parts) if part.isdigit()), "")


def _first_and_last(at: Array, begin: Array, end: Array) -> tuple[Array, Array]:
    """Returns the first and the last of some (ordered) events in each pass, or the end of the pass for both."""
    first, last = np.searchsorted(at, begin), np.searchsorted(at, end) - 1
    none = last < first
    at = np.append(at, 0)
    return np.where(none, end, at[first]), np.where(none, end, at[last])


def _spans(trace: Trace, device: DeviceTrace) -> dict[str, Array]:
    """Returns, by path, when its code, or code of a submodule, ran."""
    assert trace.recorded is not None  # noqa: S101 - the caller guarantees this; for the type checker
    running = module_at(trace.recorded, device)
    if not len(running):
        return {}
    change = np.append(0, np.flatnonzero(np.diff(running)) + 1)
    ends = np.append(change[1:], len(running))
    found: dict[str, list[Array]] = {}
    for name in np.unique(running).tolist():
        if name < 0:
            continue
        mine = running[change] == name
        spans = np.stack([change[mine], ends[mine]], axis=1)
        path = trace.recorded.names[name]
        while path:
            found.setdefault(path, []).append(spans)
            path = path.rpartition(".")[0]
    return {path: _in_order(np.concatenate(spans)) for path, spans in found.items()}


def _in_order(spans: Array) -> Array:
    # each column is searched separately
    ordered: Array = np.asfortranarray(spans[np.argsort(spans[:, 0], kind="stable")])
    return ordered
