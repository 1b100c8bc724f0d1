"""The one exception that users meet: what went wrong, and what to do about it.

The command line prints it as two lines, ``error:`` and ``hint:``, without a traceback (set ``MEMDIAG_DEBUG=1`` for
one).
"""

from __future__ import annotations

DONE = 0
BUDGET_HIT = 1
COULD_NOT = 2


class MemdiagError(Exception):
    """Something memdiag cannot do, said so that a person can act on it.

    Args:
        message: What is wrong, one sentence, naming the file or value.
        hint: What to do instead.
        exit_code: Status of the command line; 2 means "it could not be done".
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = COULD_NOT) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


class RefusedFile(MemdiagError):
    """A file that is not opened: unsafe, damaged, or not a memory trace."""
