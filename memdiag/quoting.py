"""File names in the commands that memdiag prints."""

from __future__ import annotations

import shlex


def file_argument(path: str) -> str:
    """Returns ``path`` as one argument of a shell command; "FILE" if it cannot be typed.

    A name that begins with "-" would be read as an option, so it gets "./" in front.
    """
    if not path.isprintable():
        return "FILE"
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
