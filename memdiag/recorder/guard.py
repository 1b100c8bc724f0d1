"""Keeps the recorder's failures to itself: the first one is a warning on stderr, and the training goes on."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_said: dict[str, None] = {}  # in order


def warn(text: str) -> None:
    """Prints a warning on stderr, each text once in a process."""
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
    """Wraps what the program calls without knowing: it returns None instead of raising.

    With ``MEMDIAG_DEBUG=1`` the traceback is printed as well.
    """

    @functools.wraps(function)
    def safe(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the training goes on
            report(function.__name__, error)
            return None

    return safe  # type: ignore[return-value]


def report(what: str, error: BaseException) -> None:
    """Says that a part of the recording failed."""
    warn(f"a part of the recording failed ({what}: {type(error).__name__}: {error}); the program goes on")
    if os.environ.get("MEMDIAG_DEBUG", "") not in {"", "0"}:
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__)
