"""Finds the thread of each event of a recorded program, and its phase and module.

A recorder marks the phases and modules of each thread. On CUDA, it also has PyTorch store the number of the thread in
the events (``memdiag.recorder.threads``), except in those of the main thread and of autograd's threads. Without these
numbers, the marks of all threads are one sequence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from memdiag.recorder.threads import PREFIX
from memdiag.trace.model import DeviceTrace
from memdiag.trace.recording import ProcessMarks
from memdiag.trace.table import Array

_TEXT = re.compile(rf"{PREFIX}(\d{{1,5}})")


def threads_in(strings: Sequence[str]) -> dict[int, int]:
    """Returns the number of the thread for each of the strings that the recorder set for one, by index."""
    found = {index: _TEXT.fullmatch(text) for index, text in enumerate(strings) if text.startswith(PREFIX)}
    return {index: int(match[1]) for index, match in found.items() if match}


def event_threads(recorded: ProcessMarks, device: DeviceTrace) -> Array | None:
    """Returns the number of the thread of each event (int64), or None if the events do not tell threads apart.

    The number is 0 for the main thread and for threads that Python did not start, such as autograd's.
    """
    said = device.events.user_metadata
    if not recorded.threads or not len(said):
        return None
    number = np.zeros(max(recorded.threads) + 2, np.int64)  # the last one is that of events without a text
    number[list(recorded.threads)] = list(recorded.threads.values())
    found: Array = number[np.where((said >= 0) & (said < len(number)), said, -1)]
    return found if found.any() else None


def of_each_thread(
    of_event: Array | None, of_row: Array, timeline: Callable[[Array], Array]
) -> tuple[Array, dict[int, Array]]:
    """Returns the value of each event in the timeline of its own thread, and the timelines of all numbered threads.

    Args:
        of_event: The thread of each event, or None: all marks are one sequence.
        of_row: The thread of each mark.
        timeline: Returns, for some marks, a value for each event.
    """
    if of_event is None:
        return timeline(np.ones(len(of_row), bool)), {}
    named = np.unique(of_event[of_event > 0])
    found = timeline(~np.isin(of_row, named))
    others = {int(number): timeline(of_row == number) for number in named}
    for number, values in others.items():
        found = np.where(of_event == number, values, found)
    return found, others
