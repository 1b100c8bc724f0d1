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
from memdiag.trace.tracebacks import frames_in

_LIBRARY = (
    "site-packages/",
    "dist-packages/",
    "/lib/python3",
    "<frozen ",
    "<string>",
    "<__array_function__",
    "<eval_with_key>",
    "memdiag/recorder/",
    "memdiag/phantom/",
    "fx_generated_",
)
# Files that torch.compile generates have the hash of their content as a name, in a cache folder of any name.
_COMPILED = re.compile(r"[/\\]torchinductor_|[/\\]c[a-z2-7]{51}\.py$|[/\\]torch[/\\]_inductor[/\\]")
# C++ frames that labels never show: the unwinder, the allocator, ways to create an empty tensor, the Python
# interpreter, bindings, and the start of a thread. The autograd node or operator that called them is more informative.
_MACHINERY = re.compile(
    r"torch::unwind|torch::CapturedTraceback|torch::cuda::|torch_npu::|c10::|c10_npu::|at::detail::|at::TensorBase"
    r"|_?Py(_|[A-Z])|__[Pp]yx_|pybind11::|THP[A-Z]|(cfunction|function|method|object|partial|type)_\w*call|slot_tp_"
    r"|std::|_?_?libc_|_start$|start_thread|(__)?clone3?$|execute_native_thread_routine|(\?\?)?$"
)
# Paths of Windows, with "/" (Stacks writes "\\" as "/"), and the standard library there, whose folder has no version.
_WINDOWS = re.compile(r"[A-Za-z]:/|//[^/]")
_WINDOWS_LIBRARY = re.compile(
    r"[A-Za-z]:/(.*/)?(c?python|anaconda|miniconda|miniforge|mambaforge)[^/]*/(envs/[^/]+/)?lib/", re.IGNORECASE
)
_PYTORCH = re.compile(r"(^|[/\\])torch(_npu)?[/\\]")
# Python functions through which PyTorch calls the kernels of some operators, such as bmm (2.13), in every phase.
_ROUTER = re.compile(r"[/\\]torch[/\\](_native[/\\]|_ops\.py$)")
_TELLING = ("torch::autograd::generated::", "at::_ops::", "at::native::", "ncclComm", "c10d::")
_CPP_ENDINGS = (".S", ".s", ".cpp", ".cc", ".h", ".hpp", ".cu", ".c", ".cxx", ".so", ".cuh")


# Name of the frame between the frames of a request in backward and those of the forward operation it belongs to.
BACKWARD_OF = "backward of"


# Frames of a stack that are searched for a node of an FX graph: an operator and its dispatch take fewer.
_NEAR = 64


class FxNode(NamedTuple):
    """The node of an FX graph that a frame of generated code runs (``augment_with_fx_traces``).

    Attributes:
        op: "call_function", "call_module", …
        name: Name of the node ("addmm_1").
        target: What it calls: an operator, or the path of a module.
        trace: Traceback of the source line that the node was traced from, as text; "" if unknown.
    """

    op: str
    name: str
    target: str
    trace: str

    @property
    def label(self) -> str:
        """The module that the node calls, else the name of the node."""
        return f"module {self.target}" if self.op == "call_module" and self.target else self.name

    @property
    def source(self) -> Frame | None:
        """The line of the program that the node was traced from: the innermost one outside all libraries."""
        frames = [Frame(*frame).with_slashes() for frame in frames_in(self.trace)]
        return next((frame for frame in frames if frame.is_user), frames[0] if frames else None)


class Frame(NamedTuple):
    """One frame: file, line (0: unknown), function name, and the FX node if it is generated code."""

    filename: str
    line: int
    name: str
    fx: FxNode | None = None

    @property
    def is_python(self) -> bool:
        """True for a Python frame (a C++ frame has no file, or a C++ source)."""
        return (
            bool(self.filename) and self.filename != "??" and not self.filename.endswith(_CPP_ENDINGS) and self.line > 0
        )

    @property
    def is_user(self) -> bool:
        """True for a Python frame outside all installed libraries, or a node traced from such a frame."""
        if self.fx is not None and (source := self.fx.source) is not None:
            return source.is_user
        if not self.is_python or self.is_compiled or any(mark in self.filename for mark in _LIBRARY):
            return False
        return _WINDOWS_LIBRARY.match(self.filename) is None

    @property
    def is_compiled(self) -> bool:
        """True for a frame of code that torch.compile has generated, and of TorchInductor, which calls it."""
        return _COMPILED.search(self.filename) is not None

    @property
    def is_pytorch(self) -> bool:
        """True for a C++ frame, or a Python frame of PyTorch itself."""
        return not self.is_python or _PYTORCH.search(self.filename) is not None

    @property
    def is_machinery(self) -> bool:
        """True for a C++ frame of the allocator, of the interpreter or of the stack capture, and for a router."""
        return (_ROUTER.search(self.filename) if self.is_python else _MACHINERY.match(self.name)) is not None

    @property
    def label(self) -> str:
        """The short name: ``train.py:35 forward``, or a C++ function without its arguments."""
        if self.fx is not None:
            source = self.fx.source or self._replace(fx=None)
            return f"{source.label} ({self.fx.label})"
        if self.is_python:
            return f"{self.filename.rsplit('/', 1)[-1]}:{self.line} {self.name}"
        return self.name.replace("(anonymous namespace)::", "").partition("(")[0] or self.filename

    def with_slashes(self) -> Frame:
        """Returns the frame with "/" between the folders of its file, also if it was recorded on Windows."""
        return self._replace(filename=self.filename.replace("\\", "/")) if "\\" in self.filename else self

    def __str__(self) -> str:
        text = f"{self.filename}:{self.line} {self.name}" if self.line else self.name or self.filename
        if self.fx is None:
            return text
        node = f"{self.fx.name} = {self.fx.target}" if self.fx.target else self.fx.name
        return f"{text} [{node}]" if self.fx.source is None else f"{text} [{node}, from {self.fx.source}]"


class Stacks:
    """All distinct stacks of a trace.

    Attributes:
        frames: The distinct frames. Their paths contain "/" also if they were recorded on Windows.
        offsets: int64, (num_stacks + 1,): stack ``i`` is ``frame_ids[offsets[i]:offsets[i + 1]]``.
        frame_ids: int32, indices into ``frames``, innermost first.
        own: int32, for each of the last stacks, which continue with the frames of a forward operation: the stack with
            only its own frames, or -1.
    """

    def __init__(self, frames: Sequence[Frame], offsets: Array, frame_ids: Array, own: Array | None = None) -> None:
        self.frames = tuple(frame.with_slashes() for frame in frames)
        self.offsets = offsets
        self.frame_ids = frame_ids
        self.own = np.empty(0, np.int32) if own is None else own
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

    @cached_property
    def _nodes(self) -> Array:
        return np.array([frame.fx is not None for frame in self.frames], bool)

    @cached_property
    def on_windows(self) -> bool:
        """True if a Python frame has a path of Windows."""
        return any(frame.is_python and _WINDOWS.match(frame.filename) is not None for frame in self.frames)

    def site(self, stack: int) -> Frame | None:
        """Returns the frame that names a stack: the innermost user, else Python, else C++ frame outside the allocator.

        None if the stack is unknown, or contains only internals of C++, of the interpreter and of PyTorch's dispatch.
        """
        ids = self._ids(stack)
        if not len(ids):
            return None
        mine = ids[self._user[ids]]
        if len(mine):
            return self.frames[int(mine[0])]
        frames = [self.frames[int(i)] for i in ids]
        found = next((frame for frame in frames if frame.is_python and not frame.is_machinery), None)
        found = found or next((frame for frame in frames if frame.name.startswith(_TELLING)), None)
        return found or next((frame for frame in frames if not frame.is_machinery), None)

    def label(self, stack: int) -> str:
        """Returns the short name of a stack, ``train.py:35 forward``, or "" if it has none."""
        frame = self.site(stack)
        if frame is None:
            return ""
        label = frame.label
        if self._nodes.any() and frame.fx is None:
            node = next((fx for i in self._ids(stack)[:_NEAR] if (fx := self.frames[i].fx) is not None), None)
            label += f" ({node.label})" if node is not None else ""
        return f"{BACKWARD_OF} {label}" if stack >= len(self) - len(self.own) else label

    def with_frame(self, mask: Array) -> Array:
        """Returns, per stack, whether it contains a frame for which ``mask`` (bool, per frame) is set.

        The frames of a forward operation, for which a stack in backward runs, do not count.
        """
        if not len(self.frame_ids):
            return np.zeros(len(self), bool)
        hits = np.concatenate(([0], np.cumsum(mask[self.frame_ids])))
        found = np.asarray(hits[self.offsets[1:]] > hits[self.offsets[:-1]], bool)
        if len(self.own):
            found[-len(self.own) :] = np.append(found[: -len(self.own)], False)[self.own]
        return found

    def with_forward(self, own: Array, forward: Array) -> Stacks:
        """Returns a table with more stacks at its end: the frames of a stack, then those of a forward operation.

        Args:
            own: int32, stacks of requests in backward; -1: no frames.
            forward: int32, the stack of the forward operation of each.
        """
        marker = np.array([len(self.frames)], np.int32)
        parts = [
            part
            for pair in zip(own.tolist(), forward.tolist(), strict=True)
            for part in (self._ids(pair[0]), marker, self._ids(pair[1]))
        ]
        sizes = np.array([sum(len(part) for part in parts[at : at + 3]) for at in range(0, len(parts), 3)], np.int64)
        offsets = np.concatenate((self.offsets, self.offsets[-1] + np.cumsum(sizes)))
        frames = (*self.frames, Frame("", 0, BACKWARD_OF))
        return Stacks(frames, offsets, np.concatenate((self.frame_ids, *parts)), own.astype(np.int32))

    def _ids(self, stack: int) -> Array:
        if stack < 0:
            return np.empty(0, np.int32)
        found: Array = self.frame_ids[self.offsets[stack] : self.offsets[stack + 1]]
        return found
