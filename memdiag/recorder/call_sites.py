"""Finds the line of the program that calls PyTorch now, for calls whose effects have no call stack of their own.

Gradients are allocated by autograd's thread, and a memory limit allocates nothing.
"""

from __future__ import annotations

import os
from types import FrameType

_MOST_FRAMES = 200
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/torch/", "/memdiag_recorder/", "/memdiag/recorder/", "/<frozen")


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
