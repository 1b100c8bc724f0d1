"""Reads frames: the line of the program that calls PyTorch now, and the local variables of a function.

The line is for calls whose effects have no call stack of their own: gradients are allocated by autograd's thread, and a
memory limit allocates nothing.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

OPTIMIZED = 1  # code flag: local variables are not in a dictionary

_MOST_FRAMES = 200
_OWN_REFERENCES = 3  # to the copy of local variables: from the frame, from here, and from the call that counts
_LIBRARIES = (
    *("/site-packages/", "/dist-packages/", "/torch/", "/<frozen"),
    *("/memdiag_recorder/", "/memdiag/recorder/", "/memdiag/phantom/"),
)


def calling_line(frame: FrameType | None) -> str:
    """Returns the innermost line outside libraries, as ``train.py:12 train``, or "" if there is none.

    Args:
        frame: The frame to begin with; its callers follow.
    """
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        path = "/" + frame.f_code.co_filename.replace(os.sep, "/")
        if not any(library in path for library in _LIBRARIES):
            return f"{path.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def local_variables(frame: Any) -> list[tuple[str, Any]]:
    """Returns the local variables of a frame.

    Before Python 3.13, ``f_locals`` is a copy that the frame keeps. It would hold tensors that the function deletes, so
    it is emptied, unless the program has it too.
    """
    values: dict[str, Any] = frame.f_locals
    found = list(values.items())
    if sys.version_info < (3, 13) and frame.f_code.co_flags & OPTIMIZED and sys.getrefcount(values) <= _OWN_REFERENCES:
        values.clear()
    return found
