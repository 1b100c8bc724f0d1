"""Computes when each tensor is idle.

A trace does not record when a tensor is read. But it allows conservative bounds:

* an activation that lives from forward to backward is needed until its allocating code runs again for the next layer,
  and then from the moment at which that layer's own activation is freed in backward (layers run backward in reverse
  order);
* a parameter is needed while its module's code runs in forward, while its block is processed in backward, and in the
  optimizer;
* a gradient likewise, and optimizer state only in the optimizer.

Without module marks, "while its module's code runs" is the whole pass. All indices are events; windows are half open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.offload.modules import Modules
from memdiag.offload.passes import OPTIMIZER, Passes
from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array, Table

PARAMETER, GRADIENT, STATE = (schema.CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state"))
_SAVED = schema.LIFETIMES.index("forward_to_backward")
_ENOUGH = 0.6  # fraction of the usual distance between layers: closer ones from the same line belong to one layer


@dataclass(frozen=True)
class Windows:
    """Times in which tensors are idle, one numpy array per column.

    Attributes:
        tensor: Row in Tensors.
        begin, end: Events: idle from before event ``begin`` until before event ``end``; the number of events means
            never needed again.
        device_bytes, copy_bytes: Bytes of its block; bytes to copy.
        category: Index into CATEGORIES; activations are tensors with the lifetime "forward to backward", whatever their
            name.
        is_saved: Whether it is such an activation.
    """

    tensor: Array
    begin: Array
    end: Array
    device_bytes: Array
    copy_bytes: Array
    category: Array
    is_saved: Array

    def __len__(self) -> int:
        return len(self.tensor)

    def take(self, rows: Array) -> Windows:
        """Returns the given rows."""
        return Windows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def find_windows(trace: Trace, device: DeviceTrace) -> Windows:
    """Returns every idle window of every tensor that the trace proves."""
    passes = Passes.of(device)
    if not len(passes.phase):
        nothing = np.empty(0, np.int64)
        return _table(device, nothing, nothing, nothing, nothing.astype(bool))
    modules = Modules.of(trace, device)
    saved = _of_activations(device, passes)
    kept = _of_the_model(device, passes, modules)
    tensor, begin, end = (np.concatenate([one, other]) for one, other in zip(saved, kept, strict=True))
    return _table(device, tensor, begin, end, np.arange(len(tensor)) < len(saved[0]))


def saved_rows(device: DeviceTrace) -> Array:
    """Returns the activations that forward saves for backward (rows in Tensors)."""
    tensors = device.tensors
    known = (tensors.lifetime == _SAVED) & (tensors.alloc_at >= 0) & (tensors.free_requested_at < device.num_events)
    return np.flatnonzero(known & ~np.isin(tensors.category, (PARAMETER, GRADIENT, STATE)))


def _table(device: DeviceTrace, tensor: Array, begin: Array, end: Array, is_saved: Array) -> Windows:
    tensors = device.tensors
    real = end > begin
    tensor, begin, end = tensor[real], begin[real], end[real]
    size, asked = tensors.block_bytes[tensor], tensors.requested_bytes[tensor]
    return Windows(
        tensor,
        begin,
        end,
        size,
        np.where(asked > 0, asked, size),
        tensors.category[tensor].astype(np.int64),
        is_saved[real],
    )


def _of_activations(device: DeviceTrace, passes: Passes) -> tuple[Array, Array, Array]:
    """Returns windows of activations that forward saves for backward: (tensor, begin, end)."""
    tensors = device.tensors
    rows = saved_rows(device)
    rows = rows[np.argsort(tensors.alloc_at[rows], kind="stable")]
    born, freed = tensors.alloc_at[rows], tensors.free_requested_at[rows]
    made_in, freed_in = passes.at(born), passes.at(freed)
    good = (made_in >= 0) & (freed_in > made_in)
    rows, born, freed, made_in, freed_in = (each[good] for each in (rows, born, freed, made_in, freed_in))
    if not len(rows):
        return rows, rows, rows
    begin, end = passes.end[made_in].copy(), passes.begin[freed_in].copy()
    made, gone = _next_layer(_sites(device, rows), tensors.name[rows], made_in, born, freed)
    # Backward frees later layers first; a layer that it frees later is no evidence for this one.
    begin = np.where(made >= 0, made + 1, begin)
    in_order = (gone >= 0) & (gone < freed) & (gone >= end)
    end = np.where(in_order, gone, end)
    return rows, begin, np.minimum(end, freed)


def _sites(device: DeviceTrace, rows: Array) -> Array:
    """Returns a number for each tensor: equal for tensors from the same line, or without stacks of the same size."""
    stack, size = device.tensors.stack[rows].astype(np.int64), device.tensors.requested_bytes[rows]
    return np.where(stack >= 0, stack, -1 - size)


def _next_layer(site: Array, name: Array, made_in: Array, born: Array, freed: Array) -> tuple[Array, Array]:
    """Returns, for each tensor, when its line ran for the next layer, and when that layer's first tensor is freed.

    Tensors that a line allocates for one layer have one name, if any; without names, tensors allocated close together
    belong to one layer. -1 means there is no next layer in the same pass.
    """
    made, gone = np.full(len(site), -1, np.int64), np.full(len(site), -1, np.int64)
    by = np.lexsort((np.arange(len(site)), made_in, site))
    edges = np.flatnonzero((np.diff(site[by]) != 0) | (np.diff(made_in[by]) != 0)) + 1
    for group in np.split(by, edges):
        if len(group) < 2:
            continue
        gap = np.diff(group)
        far = gap >= np.sort(gap)[(len(gap) - 1) * 3 // 4] * _ENOUGH
        named = (name[group[1:]] >= 0) & (name[group[:-1]] >= 0)
        first = np.append(0, np.flatnonzero(np.where(named, name[group[1:]] != name[group[:-1]], far)) + 1)
        layer = np.searchsorted(first, np.arange(len(group)), side="right")
        has = layer < len(first)
        made[group[has]] = born[group[first]][layer[has]]
        gone[group[has]] = np.minimum.reduceat(freed[group], first)[layer[has]]
    return made, gone


def _of_the_model(device: DeviceTrace, passes: Passes, modules: Modules) -> tuple[Array, Array, Array]:
    """Returns windows of parameters, gradients and optimizer state: (tensor, begin, end)."""
    tensors, n = device.tensors, device.num_events
    parts: list[tuple[Array, Array, Array]] = []
    category = tensors.category
    optimizer = passes.phase == OPTIMIZER
    updates = np.stack([passes.begin[optimizer], passes.end[optimizer]], axis=1)
    states = np.flatnonzero(category == STATE)
    if len(states):
        parts.append(_gaps(tensors, states, updates, n))
    trained = np.flatnonzero((category == PARAMETER) | (category == GRADIENT))
    module = modules.of_tensors(device, trained)
    for number in np.unique(module).tolist():
        rows = trained[module == number]
        uses = np.concatenate([updates, modules.uses(number, passes)])
        parts.append(_gaps(tensors, rows, uses[np.argsort(uses[:, 0], kind="stable")], n))
    if not parts:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _gaps(tensors: Table, rows: Array, uses: Array, n: int) -> tuple[Array, Array, Array]:
    """Returns the times between uses of tensors with the same uses, cut to their lifetimes.

    They are (begin, end), sorted by begin.
    """
    reach = np.maximum.accumulate(uses[:, 1]) if len(uses) else np.empty(0, np.int64)
    begin, end = np.append(0, reach), np.append(uses[:, 0], n)
    real = end > begin
    begin, end = begin[real], end[real]
    # Two events after its allocation, the kernel that fills it has been launched; copies wait for it on the device.
    born, dies = tensors.alloc_at[rows] + 2, tensors.free_requested_at[rows]
    many, each = np.repeat(rows, len(begin)), len(rows)
    first = np.maximum(np.tile(begin, each), np.repeat(np.maximum(born, 0), len(begin)))
    last = np.minimum(np.tile(end, each), np.repeat(dies, len(begin)))
    keep = last > first
    return many[keep], first[keep], last[keep]
