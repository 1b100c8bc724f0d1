"""The properties of the output device that a renderer may know."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """The output device of a report.

    Attributes:
        width: Columns of the terminal.
        color: Whether colours (ANSI sequences) may be written.
        unicode: Whether it supports more than ASCII.
    """

    width: int = 80
    color: bool = False
    unicode: bool = True


PLAIN = Look()
