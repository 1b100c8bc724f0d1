"""The one exception that users see: the problem and what to do about it.

The command line prints it as two lines, ``error:`` and ``hint:``, without a traceback (set ``MEMDIAG_DEBUG=1`` for
one).
"""

from __future__ import annotations

DONE = 0
BUDGET_HIT = 1
COULD_NOT = 2


class MemdiagError(Exception):
    """An error that the user can act on.

    Args:
        message: What is wrong, in one sentence that names the file or value.
        hint: What to do instead.
        exit_code: Exit status of the command line; 2 means error.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = COULD_NOT) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


class RefusedFile(MemdiagError):
    """A file that memdiag refuses to open: unsafe, damaged, or not a memory trace."""
