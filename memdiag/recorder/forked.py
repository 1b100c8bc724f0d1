"""Children of fork: a child that is the first of the two to use an accelerator continues the recording as its own.

Engines that serve models fork a process that does all the work (vLLM's engine core). DataLoader workers use no
accelerator, so they record nothing. The fork server of multiprocessing records nothing either, but its children do.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.util import Finalize, register_after_fork
from typing import Any

from .guard import contained
from .process import is_fork_servers_child, is_helper

_SECONDS = 120.0  # that processes of an engine get to write their last files
_LAST = -100  # priority among the finalizers of multiprocessing: the program's own come first


class Fork:
    """Follows the forks of a recorded process.

    Attributes:
        is_child: Whether this process is such a child.
    """

    def __init__(self, in_child: Callable[[], bool], end: Callable[[], None]) -> None:
        """Follows them.

        Args:
            in_child: Called in a child; returns whether it continues the recording.
            end: Writes the last file. A child of multiprocessing ends without Python's exit handlers, and calls it.
        """
        self.is_child = False
        self._in_child = in_child
        self._end = end
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
            register_after_fork(self, Fork._end_with_process)
        if is_fork_servers_child() and parent_process() is not None:  # it runs already
            self._end_with_process()

    def _forked(self) -> None:
        self.is_child = self._in_child()

    def _end_with_process(self) -> None:
        if self.is_child or is_fork_servers_child():
            Finalize(self, self._end, exitpriority=_LAST)


def leaves_to_children(module: Any, start: Callable[[Any], None]) -> bool:
    """Returns whether this process only serves another one.

    A fork server that has imported torch already forks children, in which nothing is imported. They call ``start``.

    Args:
        module: The imported module.
        start: Starts the recording of a process that has imported it.
    """
    if not is_helper():
        return False
    register_after_fork(module, start)
    return True


@contained
def give_time(module: Any) -> None:
    """Lets the processes that vLLM stops end by themselves: it kills them at once, or after five seconds.

    A process that ends earlier is not waited for.

    Args:
        module: vllm.v1.utils, just imported.
    """
    original = getattr(module, "shutdown", None)
    if original is None or "timeout" not in inspect.signature(original).parameters:
        return

    @functools.wraps(original)
    def shutdown(procs: Any, timeout: float | None = None) -> Any:
        return original(procs, timeout=max(timeout or 0.0, _SECONDS))

    module.shutdown = shutdown
