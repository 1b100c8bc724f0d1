"""Contains the recorder's failures: the first one becomes a warning on stderr, and the training continues."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .texts import text_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_said: dict[str, None] = {}  # in order


def warn(text: str) -> None:
    """Prints a warning on stderr, each text once per process."""
    if text in _said:
        return
    _said[text] = None
    try:
        sys.stderr.write("memdiag: " + text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # stderr may be closed
        pass


def said() -> list[str]:
    """Returns the warnings of this process so far."""
    return list(_said)


def contained(function: _Function) -> _Function:
    """Wraps a function that the program calls unknowingly: it returns None instead of raising.

    With ``MEMDIAG_DEBUG=1``, the traceback is also printed.
    """

    @functools.wraps(function)
    def safe(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - in any case, the training continues
            report(function.__name__, error)
            return None

    return safe  # type: ignore[return-value]


def report(what: str, error: BaseException) -> None:
    """Warns that a part of the recording failed."""
    warn(text_of("failed", part=what, kind=type(error).__name__, error=error))
    if os.environ.get("MEMDIAG_DEBUG", "") not in {"", "0"}:
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__)
