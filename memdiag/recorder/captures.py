"""Marks the capture of a CUDA graph by an inference engine with the batch size that it captures.

The allocator's events contain no batch size. Engines capture a graph for each size inside ``torch.cuda.graph``, and one
of their functions holds the size in a variable: in vLLM the description of the batch, in SGLang the number of requests.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from .call_sites import local_variables
from .guard import contained
from .marks import MARK, Marks

NAME = "graph capture: "  # of the mark; memdiag.analyzers.support.captures reads "graph capture: 64 tokens, FULL"
UNKNOWN = "unknown size"  # of a capture after others whose size is known
ENGINES = ("/vllm/", "/sglang/")
# Variables of functions that capture: the attribute with the size ("": the variable itself), and the unit.
_VARIABLES = {
    "desc": ("num_tokens", "tokens"),
    "batch_descriptor": ("num_tokens", "tokens"),
    "num_tokens": ("", "tokens"),
    "bs": ("", "requests"),
    "batch_size": ("", "requests"),
}
_MOST_FRAMES = 80


class Captures:
    """Marks the captures of one process.

    Args:
        torch: The module torch.
        marks: Receives a mark for each size, mode and pool.
    """

    def __init__(self, torch: Any, marks: Marks) -> None:
        self._context: Any = getattr(torch.cuda, "graph", None)
        self._marks = marks
        self._original: Any = None
        self._mine: Any = None
        self._latest: tuple[str, Any] = ("", None)

    def install(self) -> None:
        """Starts to mark captures."""
        if not isinstance(self._context, type) or not hasattr(self._context, "__enter__"):
            return
        original = self._original = self._context.__enter__

        @functools.wraps(original)
        def enter(context: Any) -> Any:
            self._mark(sys._getframe(1), getattr(context, "pool", None))  # of the function that captures
            return original(context)

        self._mine = self._context.__enter__ = enter

    def remove(self) -> None:
        """Stops to mark captures."""
        if self._mine is not None and self._context.__enter__ is self._mine:
            self._context.__enter__ = self._original
        self._mine = None

    @contained
    def _mark(self, frame: Any, pool: Any) -> None:
        text = captured_batch(frame)
        latest = (text, pool)  # an engine may capture a size in a pool of its own before, to measure the memory
        if latest != self._latest and (text or self._latest[0]):
            self._latest = latest
            self._marks.add(MARK, self._marks.name(NAME + (text or UNKNOWN)))


def captured_batch(frame: Any) -> str:
    """Returns what an engine captures, such as "64 tokens, FULL"; "" if no function of an engine holds its size.

    Args:
        frame: The frame that captures; its callers are searched too.
    """
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if any(part in code.co_filename.replace("\\", "/") for part in ENGINES):
            for name, (attribute, unit) in _VARIABLES.items():
                held = _variable(frame, name) if name in code.co_varnames else None
                size = getattr(held, attribute, None) if attribute else held
                if type(size) is int and size > 0:
                    mode = getattr(getattr(held, "cg_mode", None) or _mode_of_wrapper(frame), "name", "")
                    return f"{size} {unit}, {mode}" if isinstance(mode, str) and mode else f"{size} {unit}"
        frame = frame.f_back
    return ""


def _mode_of_wrapper(frame: Any) -> Any:
    """Returns the mode in which vLLM's wrapper of a piece of a model captures, or None."""
    return getattr(_variable(frame, "self"), "runtime_mode", None)


def _variable(frame: Any, name: str) -> Any:
    """Returns a local variable of a frame; None if it is not set yet."""
    return next((value for each, value in local_variables(frame) if each == name), None)
