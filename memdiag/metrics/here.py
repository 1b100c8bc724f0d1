"""Readings of this process itself, for a training that exports its own metrics."""

from __future__ import annotations

import os
import threading

from memdiag.errors import MemdiagError
from memdiag.recorder import process
from memdiag.recorder.watching.statistics import Statistics, torch_of_program
from memdiag.results.watch import WatchReading
from memdiag.text import phrase
from memdiag.watch.readings import Readings

_known: list[tuple[Statistics, Readings]] = []
_lock = threading.Lock()


def reading() -> WatchReading:
    """Returns the memory of this process now.

    Raises:
        MemdiagError: The process has not imported torch.
    """
    torch = torch_of_program()
    if torch is None:
        pid = f"{os.getpid()}"
        raise MemdiagError(phrase("watch.no-torch", pid=pid), phrase("watch.no-torch.hint"))
    with _lock:
        if not _known:
            hello = {"pid": os.getpid(), "rank": process.number("RANK"), "torch": str(torch.__version__)}
            _known.append((Statistics(torch), Readings(hello, "self")))
        statistics, readings = _known[0]
        return readings.add(statistics.read())
