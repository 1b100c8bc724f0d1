"""Helpers for tests that read a text with exactly one message."""

from __future__ import annotations

from memdiag.oom.read import read_text
from memdiag.results.oom import Message


def single(text: str) -> Message:
    messages = read_text(text).messages
    assert len(messages) == 1, [(message.dialect, dict(message.fields)) for message in messages]
    return messages[0]


def commands(text: str) -> str:
    """Returns the commands and settings of all fixes as one text."""
    return "\n".join(fix.change for finding in single(text).findings for fix in finding.fixes)
