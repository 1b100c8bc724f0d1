"""File names and other arguments in the commands that memdiag prints, for the shell of this system."""

from __future__ import annotations

import os
import shlex

ON_WINDOWS = os.name == "nt"
_SPECIAL = frozenset("&|<>^()%!;,")  # the command prompt reads these outside of quotation marks


def argument(text: str) -> str:
    """Returns a text as one argument of a shell command."""
    if not ON_WINDOWS:
        return shlex.quote(text)
    import subprocess  # slow to import

    # single quotes are part of the argument there, and a backslash needs no quotes
    quoted = subprocess.list2cmdline([text])
    return quoted if quoted.startswith('"') or not _SPECIAL.intersection(text) else f'"{quoted}"'


def file_argument(path: str) -> str:
    """Returns ``path`` as one argument of a shell command; "FILE" if it cannot be typed.

    A name that begins with "-" would be read as an option, so it gets "./" in front.
    """
    if not path.isprintable():
        return "FILE"
    return argument(f"./{path}" if path.startswith("-") else path)
