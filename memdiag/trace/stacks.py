"""Interned call stacks: equal stacks have the same number.

Frames are ordered innermost first, as in PyTorch's files. C++ frames (stacks="all") are kept. Labels skip them and all
library frames, so a stack is named after the user's own line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from memdiag.trace.table import Array

_LIBRARY = (
    "site-packages/",
    "dist-packages/",
    "/lib/python3",
    "<frozen ",
    "<string>",
    "<__array_function__",
    "<eval_with_key>",
    "/torchinductor_",
    "memdiag/recorder/",
)
# C++ frames that labels never show: the unwinder, the allocator, ways to create an empty tensor, the Python
# interpreter, bindings, and the start of a thread. The autograd node or operator that called them is more informative.
_MACHINERY = re.compile(
    r"torch::unwind|torch::CapturedTraceback|torch::cuda::|torch_npu::|c10::|c10_npu::|at::detail::|at::TensorBase"
    r"|_?Py(_|[A-Z])|__[Pp]yx_|pybind11::|THP[A-Z]|(cfunction|function|method|object|partial|type)_\w*call|slot_tp_"
    r"|std::|_?_?libc_|_start$|start_thread|(__)?clone3?$|execute_native_thread_routine|(\?\?)?$"
)
_PYTORCH = re.compile(r"(^|[/\\])torch(_npu)?[/\\]")
_TELLING = ("torch::autograd::generated::", "at::_ops::", "at::native::", "ncclComm", "c10d::")
_CPP_ENDINGS = (".S", ".s", ".cpp", ".cc", ".h", ".hpp", ".cu", ".c", ".cxx", ".so", ".cuh")


class Frame(NamedTuple):
    """One frame: file, line (0: unknown) and function name."""

    filename: str
    line: int
    name: str

    @property
    def is_python(self) -> bool:
        """True for a Python frame (a C++ frame has no file, or a C++ source)."""
        return (
            bool(self.filename) and self.filename != "??" and not self.filename.endswith(_CPP_ENDINGS) and self.line > 0
        )

    @property
    def is_user(self) -> bool:
        """True for a Python frame outside all installed libraries."""
        return self.is_python and not any(mark in self.filename for mark in _LIBRARY)

    @property
    def is_pytorch(self) -> bool:
        """True for a C++ frame, or a Python frame of PyTorch itself."""
        return not self.is_python or _PYTORCH.search(self.filename) is not None

    @property
    def is_machinery(self) -> bool:
        """True for a C++ frame of the allocator, of the interpreter, or of the stack capture."""
        return not self.is_python and _MACHINERY.match(self.name) is not None

    @property
    def label(self) -> str:
        """The short name: ``train.py:35 forward``, or a C++ function without its arguments."""
        if self.is_python:
            return f"{self.filename.rsplit('/', 1)[-1]}:{self.line} {self.name}"
        return self.name.replace("(anonymous namespace)::", "").partition("(")[0] or self.filename

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} {self.name}" if self.line else self.name or self.filename


class Stacks:
    """All distinct stacks of a trace.

    Attributes:
        frames: The distinct frames.
        offsets: int64, (num_stacks + 1,): stack ``i`` is ``frame_ids[offsets[i]:offsets[i + 1]]``.
        frame_ids: int32, indices into ``frames``, innermost first.
    """

    def __init__(self, frames: Sequence[Frame], offsets: Array, frame_ids: Array) -> None:
        self.frames = tuple(frames)
        self.offsets = offsets
        self.frame_ids = frame_ids
        offsets.flags.writeable = False
        frame_ids.flags.writeable = False

    @classmethod
    def empty(cls) -> Stacks:
        """Returns a table without stacks."""
        return cls((), np.zeros(1, np.int64), np.empty(0, np.int32))

    @classmethod
    def from_lists(cls, stacks: Sequence[Sequence[Frame]]) -> tuple[Stacks, Array]:
        """Interns ``stacks``; returns the table and, int32, the number of each given stack (-1 for an empty one)."""
        frames: dict[Frame, int] = {}
        known: dict[tuple[int, ...], int] = {}
        ids = np.empty(len(stacks), np.int32)
        for row, stack in enumerate(stacks):
            key = tuple(frames.setdefault(frame, len(frames)) for frame in stack)
            ids[row] = known.setdefault(key, len(known)) if key else -1
        offsets = np.zeros(len(known) + 1, np.int64)
        np.cumsum([len(key) for key in known], out=offsets[1:])
        flat = np.fromiter((frame for key in known for frame in key), np.int32, int(offsets[-1]))
        return cls(tuple(frames), offsets, flat), ids

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, stack: int) -> tuple[Frame, ...]:
        """Returns the frames of a stack, innermost first, or () for -1."""
        if stack < 0:
            return ()
        return tuple(self.frames[i] for i in self.frame_ids[self.offsets[stack] : self.offsets[stack + 1]])

    @cached_property
    def _user(self) -> Array:
        return np.array([frame.is_user for frame in self.frames], bool)

    def site(self, stack: int) -> Frame | None:
        """Returns the frame that names a stack: the innermost user, else Python, else C++ frame outside the allocator.

        None if the stack is unknown, or contains only C++ and interpreter internals.
        """
        if stack < 0:
            return None
        ids = self.frame_ids[self.offsets[stack] : self.offsets[stack + 1]]
        if not len(ids):
            return None
        mine = ids[self._user[ids]]
        if len(mine):
            return self.frames[int(mine[0])]
        frames = [self.frames[int(i)] for i in ids]
        found = next((frame for frame in frames if frame.is_python), None)
        found = found or next((frame for frame in frames if frame.name.startswith(_TELLING)), None)
        return found or next((frame for frame in frames if not frame.is_machinery), None)

    def label(self, stack: int) -> str:
        """Returns the short name of a stack, ``train.py:35 forward``, or "" if it has none."""
        frame = self.site(stack)
        return "" if frame is None else frame.label

    def with_frame(self, mask: Array) -> Array:
        """Returns, per stack, whether it contains a frame for which ``mask`` (bool, per frame) is set."""
        if not len(self.frame_ids):
            return np.zeros(len(self), bool)
        hits = np.concatenate(([0], np.cumsum(mask[self.frame_ids])))
        return np.asarray(hits[self.offsets[1:]] > hits[self.offsets[:-1]], bool)
