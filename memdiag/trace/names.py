"""Names of tensors in a trace that a recorder marked.

* recorded under a name: a parameter's path in the model, ``exp_avg of …``, ``grad of …``, an input;
* allocated in a module: the module's path, and the operation if a frame identifies it: ``layers.3.mlp (gelu)``;
* allocated elsewhere: the operation and the user's line: ``cross_entropy at train.py:35 step``;
* allocated in backward without frames: named as the gradient of the only module that allocated tensors of exactly that
  size earlier in the step; the name says that it was inferred from the size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from memdiag.trace import schema
from memdiag.trace.distinct import distinct
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.recorded import UNNAMED, module_at
from memdiag.trace.recording import ProcessMarks
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array

_NUMBER = re.compile(r"(?<![^.\s])\d+(?![^.\s(])")
# Functions that only forward a call: the operation is their caller.
_PASSING = {
    "forward",
    "__call__",
    "_call_impl",
    "_wrapped_call_impl",
    "inner",
    "wrapper",
    "wrapped",
    "decorate_context",
    "_fn",
}
_FORWARD, _BACKWARD = schema.PHASES.index("forward"), schema.PHASES.index("backward")
_MOST_OPERATION, _MOST_LINE = 80, 200  # characters
_WORKSPACE = schema.CATEGORIES.index("workspace")


def collapsed(name: str) -> str:
    """Returns a name with a star for every number in its path: ``layers.*.mlp.up.weight``."""
    return _NUMBER.sub("*", name)


def name_tensors(
    trace: Trace, recorded: ProcessMarks, seen: Sequence[Array]
) -> tuple[tuple[str, ...], tuple[DeviceTrace, ...]]:
    """Returns all strings of a trace and its devices with names.

    Args:
        seen: Names from ``Recorded.seen``, per device.
    """
    strings = list(trace.strings)
    places = _Places(trace.stacks)
    numbers: dict[tuple[str, int], int] = {}
    first = {text: row for row, text in reversed(list(enumerate(recorded.names)))}

    def number(text: str, row: int = -1) -> int:
        key = (text, -1 if first.get(text, row) == row else row)  # a repeated name is of another tensor: it stays apart
        if key not in numbers:
            numbers[key] = len(strings)
            strings.append(text)
        return numbers[key]

    devices = []
    for device, names_seen in zip(trace.devices, seen, strict=True):
        name = _names(device, names_seen, recorded, places, number)
        devices.append(replace(device, tensors=device.tensors.replace(name=name.astype(np.int32))))
    return tuple(strings), tuple(devices)


def _names(
    device: DeviceTrace, seen: Array, recorded: ProcessMarks, places: _Places, number: Callable[..., int]
) -> Array:
    tensors = device.tensors
    name = _each(seen, lambda row: number(recorded.names[row], row))
    rest = np.flatnonzero(name < 0)
    module = np.append(module_at(recorded, device), UNNAMED)[tensors.alloc_at[rest]]
    module[tensors.alloc_at[rest] < 0] = UNNAMED
    stack = tensors.stack[rest].astype(np.int64)
    name[rest] = _each(
        (module + 1) << 32 | (stack + 1),
        lambda key: _made(recorded, places, number, (key >> 32) - 1, (key & 0xFFFFFFFF) - 1),
    )
    workspace = (seen < 0) & (tensors.category == _WORKSPACE)
    name[workspace] = number("library workspace")
    is_brief = workspace & (tensors.alloc_at >= 0) & (tensors.free_requested_at == tensors.alloc_at + 1)
    name[is_brief] = number("convolution workspace")
    return _by_size(device, module_of=_spread(rest, module, len(name)), name=name, recorded=recorded, number=number)


def _each(keys: Array, make: Callable[[int], int]) -> Array:
    """Returns ``make(key)`` for every key that is not negative, each computed once; -1 for the others."""
    different, index = distinct(keys)
    made = np.array([make(key) if key >= 0 else UNNAMED for key in different.tolist()], np.int64)
    result: Array = made[index] if len(keys) else np.empty(0, np.int64)
    return result


class _Places:
    """Operation and user line of each stack, computed once: hostile files have long stacks with many tensors each."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._known: dict[int, tuple[str, str]] = {}

    def of(self, stack: int) -> tuple[str, str]:
        """Returns the operation and the user's line of a stack, each "" if it has none."""
        if stack not in self._known:
            line = self._stacks.label(stack) if any(frame.is_user for frame in self._stacks[stack]) else ""
            self._known[stack] = _operation(self._stacks, stack)[:_MOST_OPERATION], line[-_MOST_LINE:]
        return self._known[stack]


def _made(recorded: ProcessMarks, places: _Places, number: Callable[[str], int], module: int, stack: int) -> int:
    operation, where = places.of(stack)
    if module >= 0:
        path = recorded.names[module]
        return number(f"{path} ({operation})" if operation else path)
    if not where:
        return UNNAMED
    return number(f"{operation} at {where}" if operation else where)


def _operation(stacks: Stacks, stack: int) -> str:
    """Returns the innermost library function on a stack if it performs an operation itself."""
    for frame in [frame for frame in stacks[stack] if not frame.is_machinery][:2]:
        if not frame.is_python or frame.is_user or frame.name.startswith("<"):
            break
        if frame.name not in _PASSING:
            return frame.name
    return ""


def _by_size(
    device: DeviceTrace, *, module_of: Array, name: Array, recorded: ProcessMarks, number: Callable[[str], int]
) -> Array:
    """Names tensors that backward allocated without frames.

    The name is that of the one module whose forward allocated tensors of that size in the same step.
    """
    tensors = device.tensors
    key = tensors.requested_bytes << 20 | np.maximum(tensors.step_alloc, 0)
    forward = np.flatnonzero((tensors.phase_alloc == _FORWARD) & (module_of >= 0))
    rows = np.flatnonzero((name < 0) & (tensors.phase_alloc == _BACKWARD))
    if not len(forward):
        return name
    order = np.argsort(key[forward])
    sorted_key, sorted_module = key[forward][order], module_of[forward][order]
    first = np.flatnonzero(np.append(True, sorted_key[1:] != sorted_key[:-1]))
    keys, lowest = sorted_key[first], np.minimum.reduceat(sorted_module, first)
    is_only = lowest == np.maximum.reduceat(sorted_module, first)
    place = np.minimum(np.searchsorted(keys, key[rows]), len(keys) - 1)
    module = np.where((keys[place] == key[rows]) & is_only[place], lowest[place], UNNAMED)
    name[rows] = _each(module, lambda of: number(f"gradient of {recorded.names[of]} (by its size)"))
    return name


def _spread(rows: Array, values: Array, size: int) -> Array:
    result = np.full(size, UNNAMED, np.int64)
    result[rows] = values
    return result
