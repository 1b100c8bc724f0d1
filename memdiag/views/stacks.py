"""The call stacks, names and modules used in a picture, renumbered from 0: a trace has many more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from memdiag.analyzers.support.names import module_of
from memdiag.trace.model import Trace
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array

USER, LIBRARY, PYTORCH = range(3)  # owner of a frame's code; C++ counts as PyTorch's
LONGEST = 300  # characters of a frame or a name: longer text is useless
_OF_PARAMETERS = [CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state")]


@dataclass
class StackSymbols:
    """Maps a trace's stack and name numbers to indices into the lists below.

    Attributes:
        frames: Texts of frames: file:line function.
        labels: Short name of each frame.
        kinds: For each frame, USER, LIBRARY or PYTORCH.
        stacks: Frames of each stack (indices into ``frames``), innermost first.
        sites: The frame that names each stack (index into ``frames``), or -1.
        strings: Names of tensors.
        modules: Paths in the model, with stars for numbers.
    """

    trace: Trace
    frames: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    stacks: list[list[int]] = field(default_factory=list)
    sites: list[int] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    _frames: dict[int, int] = field(default_factory=dict)
    _stacks: dict[int, int] = field(default_factory=dict)
    _strings: dict[int, int] = field(default_factory=dict)
    _modules: dict[str, int] = field(default_factory=dict)

    def stack(self, numbers: Array) -> Array:
        """Returns stacks of the trace (-1: none) as rows of ``stacks``."""
        return _each(numbers, self._stack)

    def name(self, numbers: Array) -> Array:
        """Returns names of the trace (-1: none) as rows of ``strings``."""
        return _each(numbers, self._name)

    def module(self, numbers: Array, category: Array) -> Array:
        """Returns the modules (rows of ``modules``, -1: none) of tensors with these names and categories."""
        of_parameter = np.isin(category, _OF_PARAMETERS)
        key = np.where(numbers >= 0, numbers.astype(np.int64) * 2 + of_parameter, -1)
        return _each(key, lambda both: self._module(both // 2, of_parameter=bool(both % 2)))

    def _stack(self, number: int) -> int:
        if number not in self._stacks:
            table = self.trace.stacks
            ids = table.frame_ids[table.offsets[number] : table.offsets[number + 1]].tolist()
            self._stacks[number] = len(self.stacks)
            self.stacks.append([self._frame(frame) for frame in ids])
            site = table.site(number)
            self.sites.append(
                -1 if site is None else next(self._frames[frame] for frame in ids if table.frames[frame] == site)
            )
        return self._stacks[number]

    def _frame(self, number: int) -> int:
        if number not in self._frames:
            self._frames[number] = len(self.frames)
            frame = self.trace.stacks.frames[number]
            self.frames.append(frame_text(frame))
            self.labels.append(frame.label[:LONGEST])
            self.kinds.append(USER if frame.is_user else PYTORCH if frame.is_pytorch else LIBRARY)
        return self._frames[number]

    def _name(self, number: int) -> int:
        if number not in self._strings:
            self._strings[number] = len(self.strings)
            self.strings.append(self.trace.strings[number][:LONGEST])
        return self._strings[number]

    def _module(self, number: int, *, of_parameter: bool) -> int:
        text = module_of(self.trace.strings[number], of_parameter=of_parameter)[:LONGEST]
        if text not in self._modules:
            self._modules[text] = len(self.modules)
            self.modules.append(text)
        return self._modules[text]


def frame_text(frame: Frame) -> str:
    """Returns a frame as text of at most ``LONGEST`` characters.

    It is truncated at the front, since files differ at their ends.
    """
    text = str(frame)
    return text if len(text) <= LONGEST else "…" + text[1 - LONGEST :]


def _each(numbers: Array, make: Callable[[int], int]) -> Array:
    """Returns ``make(number)`` for each non-negative number, each computed once; -1 for the others."""
    distinct, index = np.unique(numbers, return_inverse=True)
    made = np.array([make(int(number)) if number >= 0 else -1 for number in distinct], np.int64)
    return np.asarray(made[index]) if len(distinct) else np.empty(0, np.int64)
