"""What a renderer may know of the place that its text goes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """The place a report is shown in.

    Attributes:
        width: Columns of the terminal.
        color: Whether colours (ANSI sequences) may be written.
        unicode: Whether it shows more than ASCII.
    """

    width: int = 80
    color: bool = False
    unicode: bool = True


PLAIN = Look()
