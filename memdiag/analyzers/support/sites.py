"""Tensors by call site: the same line reached by several paths is one call site.

A tensor has no stack if it was allocated before the recording began or by autograd's thread (which has no Python
frames), or if no stacks were recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from memdiag.analyzers.support.context import DeviceView
from memdiag.results.finding import Finding
from memdiag.text import Phrase, phrase
from memdiag.trace.schema import CATEGORIES, PHASES
from memdiag.trace.stacks import Frame, Stacks
from memdiag.trace.table import Array

CLEARLY_LESS = 0.98  # fraction of the allocated peak: the peak of the report may miss tensors of the step
UNKNOWN, BEFORE, BACKWARD = range(3)  # why a tensor has no stack
_BACKWARD_OF = re.compile(r"torch::autograd::generated::(\w+?)Backward\d*::apply")
_OPERATOR = re.compile(r"at::_ops::(\w+)::")


@dataclass(frozen=True)
class SiteMemory:
    """A call site and the memory of some of its tensors.

    Attributes:
        label: Short name ("train.py:35 forward"); for tensors without a stack, the reason.
        bytes: Bytes of their blocks.
        num_tensors: Number of tensors.
        stack: The stack of most of the bytes, or -1.
        rows: Rows of Tensors.
    """

    label: str
    bytes: int
    num_tensors: int
    stack: int
    rows: Array


def first_finding(view: DeviceView, find: Callable[[DeviceView], Iterable[Finding]]) -> list[Finding]:
    """Returns the findings of ``find`` at a moment.

    If there are none at the peak, and clearly more is allocated at the allocated peak, returns the findings there. The
    title of a finding at another moment names it (``places.when``).
    """
    found = list(find(view))
    if found or view.kind != "peak":
        return found
    device, at = view.device, view.device.peak("allocated")
    if at < 0 or device.usage_at(view.at)["allocated"] >= CLEARLY_LESS * device.usage_at(at)["allocated"]:
        return found
    return list(find(DeviceView(view.trace, device, at, "allocated")))


def common_callers(view: DeviceView, stacks: Array) -> list[str]:
    """Returns the user lines that all given stacks have in common, the outermost first; none if nothing is common."""
    common: list[Frame] | None = None
    for number in np.unique(stacks[stacks >= 0]).tolist():
        outermost_first = view.trace.stacks[number][::-1]
        both = zip(outermost_first if common is None else common, outermost_first, strict=False)
        common = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], both)] if outermost_first else common
    return [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line} {frame.name}" for frame in common or [] if frame.is_user]


def by_place(view: DeviceView, rows: Array) -> list[SiteMemory]:
    """Returns the call sites of the tensors ``rows``, most bytes first."""
    tensors = view.device.tensors
    size = tensors.block_bytes[rows]
    stacks, group = np.unique(tensors.stack[rows], return_inverse=True)
    held = np.bincount(group, weights=size, minlength=len(stacks))
    labels = [label_of(view, int(stack)) for stack in stacks]
    names: dict[str, int] = {}
    name_of = np.array([names.setdefault(label, len(names)) for label in labels], np.int64)
    own = np.append(name_of, -1)[group] if len(stacks) else group
    if "" in names:  # one call site for each reason
        silent = own == names[""]
        reasons = without_stack(view, rows[silent])
        for reason in np.unique(reasons).tolist():
            names[stackless(reason)] = len(names)
        own[silent] = [names[stackless(reason)] for reason in reasons.tolist()]
    places = []
    for label, number in names.items():
        mine = np.flatnonzero(own == number)
        if not len(mine):
            continue
        of_stack = stacks[group[mine]]
        best = stacks[np.argmax(np.where(np.isin(stacks, of_stack), held, -1))]
        places.append(SiteMemory(label, int(size[mine].sum()), len(mine), int(best), rows[mine]))
    return sorted(places, key=lambda place: (-place.bytes, place.label))


def label_of(view: DeviceView, stack: int) -> str:
    """Returns the short name of a stack; without Python frames, the operator of backward; "" for none."""
    frames = view.trace.stacks[stack]
    python = [frame for frame in frames if frame.is_python and not frame.filename.endswith(".S")]
    if not frames or any(not frame.is_machinery for frame in python):
        return view.label(stack)
    for pattern in (_BACKWARD_OF, _OPERATOR):
        operator = next((match.group(1) for frame in frames if (match := pattern.search(frame.name))), None)
        if operator and any("torch::autograd::" in frame.name for frame in frames):
            return phrase("places.backward.of" if pattern is _BACKWARD_OF else "places.backward.in", operator=operator)
    return view.label(stack)


def without_stack(view: DeviceView, rows: Array) -> Array:
    """Returns, for tensors without a stack, the reason (``UNKNOWN``, ``BEFORE`` or ``BACKWARD``)."""
    tensors = view.device.tensors
    backward = (tensors.phase_alloc[rows] == PHASES.index("backward")) & (len(view.trace.stacks) > 0)
    return np.where(
        tensors.alloc_at[rows] < 0,
        BEFORE,
        np.where(backward, BACKWARD, UNKNOWN),
    )


def stackless(reason: int = UNKNOWN) -> Phrase:
    """Returns the label of tensors without a stack.

    It begins with a parenthesis in every language, unlike any file name.
    """
    return phrase(("places.stackless", "places.stackless.before", "places.stackless.backward")[reason])


def by_category(view: DeviceView, rows: Array) -> dict[str, int]:
    """Returns the bytes of each category among the tensors ``rows``, most first, without empty ones."""
    return sums(CATEGORIES, view.device.tensors.category[rows], view.device.tensors.block_bytes[rows])


def sums(names: tuple[str, ...], index: Array, size: Array) -> dict[str, int]:
    """Returns the bytes of each name, most first, without empty ones.

    ``index`` refers to ``names``, one entry per size.
    """
    held = {name: int(size[index == number].sum()) for number, name in enumerate(names)}
    return {name: total for name, total in sorted(held.items(), key=lambda item: -item[1]) if total}


def module_of(stacks: Stacks, stack: int) -> str:
    """Returns the file of the innermost ``forward`` on a stack ("linear.py forward"), the kind of layer, or ""."""
    for frame in stacks[stack]:
        if frame.name == "forward" and frame.is_python:
            return f"{frame.filename.replace(chr(92), '/').rsplit('/', 1)[-1]} forward"
    return ""


def by_module(view: DeviceView, rows: Array) -> dict[str, int]:
    """Returns the bytes of each kind of layer among the tensors ``rows``, most first; others are omitted."""
    tensors = view.device.tensors
    stacks, group = np.unique(tensors.stack[rows], return_inverse=True)
    held = np.bincount(group, weights=tensors.block_bytes[rows], minlength=len(stacks))
    total: dict[str, int] = {}
    for stack, size in zip(stacks, held, strict=True):
        if module := module_of(view.trace.stacks, int(stack)):
            total[module] = total.get(module, 0) + int(size)
    return dict(sorted(total.items(), key=lambda item: -item[1]))
