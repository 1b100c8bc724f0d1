"""The progress of ``memdiag fit``: a line for each run, and on a terminal a bar with the time left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from memdiag.cli.progress import ProgressLine, bar
from memdiag.cli.talk import say, wipe_line
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.fit.order import FitProgress


@contextlib.contextmanager
def shown(*, quiet: bool) -> Iterator[Callable[[FitProgress], None]]:
    """Returns the function that shows progress; ``quiet`` omits the lines of runs."""
    with ProgressLine() as line:

        def show(now: FitProgress) -> None:
            if not quiet:
                wipe_line()
                say(f"memdiag: {now.text}")
            share = now.num_done / max(now.num_done + now.num_left, 1)
            line(
                phrase(
                    "fit.progress",
                    bar=bar(share),
                    done=now.num_done,
                    left=now.num_left,
                    time=_duration(now.seconds_left),
                )
            )

        yield show


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
