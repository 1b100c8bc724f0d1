"""Says once, on stderr, why a program on a simulated device takes long: synthetic values, or weights made on the host.

On a simulated device kernels take no time, so half a minute without a training step is unusual. Two causes are known:

* a loop that waits for a value, which no kernel computes. The simulated runtime counts the values that the program
  reads and where (``phantom_facts``);
* weights that PyTorch draws on the host. The stack of the main thread shows them.

With ``memdiag record --values auto``, a program that waits for a value is ended, so that memdiag can run it again with
other values.

It is a source of samples (see ``sampling``) without a section of its own: the timer calls it, and it starts no thread.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import config
from .files import write_json
from .guard import warn
from .main_stack import Call, stack_of_main
from .phantom_facts import END_VARIABLE, last_synthetic_read, synthetic_reads
from .texts import text_of

LONG = 30.0  # seconds
_FEWEST_READS = 30  # in this time: a loop that waits for a value reads it in each pass
_LONGEST_PAUSE = 5.0  # seconds between two looks that count at most: the process may have been stopped
_WRITERS = ("torch/serialization.py", "torch/distributed/checkpoint/state_dict_saver.py", "safetensors/torch.py")
_MAKERS = frozenset({"reset_parameters", "_init_weights", "init_weights"})


class LongWaits:
    """The waits of one process.

    Args:
        steps: Returns the number of completed training steps.
        clock: Returns seconds.
        reads: Returns how many synthetic values each place in the program has read so far.
        stack: Returns the calls that run on the main thread, innermost first.
    """

    name = "waits"

    def __init__(
        self,
        steps: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        reads: Callable[[], dict[str, int]] = synthetic_reads,
        stack: Callable[[], Iterable[Call]] = stack_of_main,
    ) -> None:
        self._steps, self._clock, self._reads, self._stack = steps, clock, reads, stack
        self._seen = -1  # steps at the last look
        self._began = self._last = clock()
        self._before: dict[str, int] = {}
        self._made_for = 0.0  # seconds that the main thread has made weights since the last step

    def devices(self) -> tuple[int, ...]:
        """Returns no devices: other sources know them."""
        return ()

    def take(self, when: str, devices: tuple[int, ...]) -> dict[str, Any] | None:  # noqa: ARG002 - a source's signature
        """Looks at the program; returns no section."""
        if when != "timer":
            return None
        now, steps = self._clock(), self._steps()
        passed, self._last = min(now - self._last, _LONGEST_PAUSE), now
        if steps != self._seen:
            self._seen, self._began, self._before, self._made_for = steps, now, self._reads(), 0.0
            return None
        stack = tuple(self._stack())
        if saves(stack):  # reads all parameters and writes them, which takes long, but waits for no value
            self._began, self._before = now, self._reads()
        if place := weights_made_at(stack):
            self._made_for += passed
            if self._made_for >= LONG:
                warn_once("wait.weights", seconds=int(self._made_for), place=place)
        if now - self._began >= LONG:
            self._look_at_reads(int(now - self._began))
            self._began, self._before = now, self._reads()
        return None

    def _look_at_reads(self, seconds: int) -> None:
        more = {place: count - self._before.get(place, 0) for place, count in self._reads().items()}
        if (count := sum(more.values())) >= _FEWEST_READS:
            warn_once("wait.values", seconds=seconds, count=f"{count:,}", place=max(more, key=lambda one: more[one]))
            if os.environ.get(END_VARIABLE) == "1":
                _end_waiting()


def _end_waiting() -> None:
    """Notes where the program waits, and ends it by SIGTERM."""
    settings = config.from_environment()
    if settings is not None and settings.folder:
        path = os.path.join(settings.folder, ".processes", f"wait-{os.getpid()}.json")
        write_json(path, {"waited": last_synthetic_read(), "pid": os.getpid()})
    os.kill(os.getpid(), signal.SIGTERM)


_warned: set[str] = set()


def warn_once(key: str, **values: Any) -> None:
    """Prints a text once per process, whatever its numbers are."""
    if key not in _warned:
        _warned.add(key)
        warn(text_of(key, **values))


def saves(stack: Iterable[Call]) -> bool:
    """Returns whether PyTorch or safetensors writes a file now.

    Args:
        stack: The running calls, innermost first.
    """
    paths = ((file.replace(os.sep, "/"), function) for file, _, function in stack)
    return any(path.endswith(_WRITERS) and "save" in function for path, function in paths)


def weights_made_at(stack: Iterable[Call]) -> str:
    """Returns the line of the program in which PyTorch draws initial weights now, or "".

    Args:
        stack: The running calls, innermost first.
    """
    makes = False
    for file, line, function in stack:
        path = file.replace(os.sep, "/")
        makes = makes or path.endswith("torch/nn/init.py") or function in _MAKERS
        if makes and "/site-packages/" not in path and "/torch/" not in path:
            return f"{path}:{line} ({function})"
    return ""
