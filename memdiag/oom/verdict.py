"""The cause behind an allocator's numbers: which of them left no room for the request."""

from __future__ import annotations

from memdiag.oom.model import Found, Judgement


def judge(found: Found, context: str = "") -> Judgement:  # noqa: ARG001
    """Returns the cause of a message.

    Args:
        found: The message; its own judgement, if it has one, is returned as it is.
        context: The lines around it, as they stood.
    """
    return found.judgement or Judgement("unknown", "low")
