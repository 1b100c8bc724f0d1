"""The cards that the processes of one recording share: a file in shared memory, see shared/cards.h.

Processes of other recordings, of a rank that runs alone (``--as-rank``), and of programs that nobody records have their
cards to themselves.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "MEMDIAG_PHANTOM_CARDS"
SOURCES = Path(__file__).with_name("shared")
_MEMORY = "/dev/shm"  # noqa: S108 - no predictable name: mkstemp makes it
_BYTES = 256 * (8 + 64 * 8)  # of all slots


@contextlib.contextmanager
def shared_cards() -> Iterator[dict[str, str]]:
    """Creates the file for one recording, and removes it at the end.

    Yields:
        The variable for the processes that share; empty if the file cannot be created, then each process is alone.
    """
    folder = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    try:
        descriptor, path = tempfile.mkstemp(prefix="memdiag-cards-", dir=folder)
        os.ftruncate(descriptor, _BYTES)
        os.close(descriptor)
    except OSError:
        yield {}
        return
    try:
        yield {VARIABLE: path}
    finally:
        with contextlib.suppress(OSError):
            Path(path).unlink()
