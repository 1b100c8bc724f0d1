"""The threads of a process that call modules: each has its own phase and module, and PyTorch names it in its events.

The main thread is number 0. A number is free again when its thread ends, so a server that starts a thread for each
request needs few. The allocator of CUDA stores a text of the allocating thread in each of its events
(``_set_memory_metadata``, since torch 2.10), which the reader needs to tell threads apart. Threads that have set a text
themselves keep it.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from .guard import contained
from .marks import ModuleMarks

PREFIX = "memdiag thread "  # the text of a thread is this and its number


class ModuleStack(list[int]):
    """The modules (name numbers) that a thread has entered and not left.

    Attributes:
        marks: The thread's module marks.
        mark: Appends a module mark.
    """

    __slots__ = ("mark", "marks")

    def __init__(self, marks: ModuleMarks) -> None:
        super().__init__()
        self.marks, self.mark = marks, marks.append


class Thread:
    """One thread.

    Attributes:
        number: Its number.
        in_backward: Number of calls of backward that it is in.
        is_foreign: Whether it is one of autograd's threads, which Python did not start.
    """

    def __init__(self, number: int, free: list[int] | None, *, is_foreign: bool = False) -> None:
        self.number, self.in_backward, self.is_foreign = number, 0, is_foreign
        self._free = free

    def __del__(self) -> None:
        if self._free is not None:
            self._free.append(self.number)


class Threads:
    """All threads that have called a module or backward.

    Args:
        torch: The module torch.
    """

    def __init__(self, torch: Any) -> None:
        self._memory: Any = getattr(getattr(torch, "cuda", None), "memory", None)
        self._free: list[int] = []
        self._unused = itertools.count(1)
        self._in_backward: list[Thread] = []

    @property
    def is_in_backward(self) -> bool:
        """Returns whether any thread is in backward."""
        return bool(self._in_backward)

    def enter(self) -> Thread:
        """Returns the present thread, which has called neither a module nor backward yet."""
        me = threading.get_ident()
        if me == threading.main_thread().ident:
            return Thread(0, None)
        known = threading._active.get(me)  # type: ignore[attr-defined]  # current_thread() would add the thread
        if self._in_backward and (known is None or isinstance(known, threading._DummyThread)):
            return Thread(self._in_backward[-1].number, None, is_foreign=True)
        try:
            number = self._free.pop()
        except IndexError:
            number = next(self._unused)
        self._say(f"{PREFIX}{number}")
        return Thread(number, self._free)

    def begin_backward(self, thread: Thread) -> None:
        """Notes that a thread enters backward."""
        thread.in_backward += 1
        if thread.in_backward == 1:
            self._in_backward.append(thread)

    def end_backward(self, thread: Thread) -> None:
        """Notes that a thread leaves backward."""
        thread.in_backward -= 1
        if not thread.in_backward and thread in self._in_backward:
            self._in_backward.remove(thread)

    @contained
    def _say(self, text: str) -> None:
        """Sets the text of the present thread for the allocator's events, if it has none."""
        memory = self._memory
        if hasattr(memory, "_set_memory_metadata") and not memory._get_memory_metadata():
            memory._set_memory_metadata(text)
