"""The stack of the main thread, read from another thread without holding its frames.

``sys._current_frames`` hands out frames. While another thread has them, a function of the main thread that returns
keeps its local variables, so the program frees tensors later than without memdiag. ``faulthandler`` writes the names
and lines of the running functions, and makes no frames.
"""

from __future__ import annotations

import faulthandler
import os
import re
import threading

Call = tuple[str, int, str]  # file, line and function
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
_CALL = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_ESCAPED = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_MOST_BYTES = 1 << 22  # of text; each thread has at most 100 lines


def stack_of_main() -> list[Call]:
    """Returns the calls that run on the main thread, innermost first; [] if they are not known."""
    number = threading.main_thread().ident
    if number is None or not hasattr(os, "memfd_create"):
        return []
    file = os.memfd_create("memdiag-stack")
    try:
        faulthandler.dump_traceback(file, all_threads=True)
        text = os.pread(file, _MOST_BYTES, 0).decode("ascii", "replace")
    finally:
        os.close(file)
    return calls_in(text, number)


def calls_in(text: str, number: int) -> list[Call]:
    """Returns the calls of one thread in the text of ``faulthandler``, innermost first.

    Args:
        text: The text.
        number: The thread (``threading.Thread.ident``).
    """
    found: list[Call] = []
    is_wanted = False
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            is_wanted = int(thread[1], 16) == number
        elif is_wanted and (call := _CALL.match(line)):
            found.append((_plain(call[1]), int(call[2]), _plain(call[3])))
    return found


def _plain(name: str) -> str:
    return _ESCAPED.sub(lambda match: match[0].encode().decode("unicode_escape"), name)
