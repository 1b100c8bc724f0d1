"""The cause of an out-of-memory message: from its dialect, else from the classifier and its numbers."""

from __future__ import annotations

from memdiag.diagnosis.classifier import classify
from memdiag.diagnosis.facts import Facts
from memdiag.oom.model import Found
from memdiag.oom.surroundings import without_numbers
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import format_bytes


def judge(found: Found, context: str = "") -> Judgement:
    """Returns the cause of a message.

    Args:
        found: The message; if it has its own judgement, that is returned.
        context: The surrounding lines, unchanged.
    """
    if found.judgement is not None:
        return found.judgement
    facts = Facts.from_fields(found.fields, found.backend, found.framework)
    if found.backend == "cpu":
        size = format_bytes(facts.requested) if facts.requested is not None else ""
        return Judgement("host", "high", (), (phrase("cause.host.size", size=size) if size else phrase("cause.host"),))
    if all(number is None for number in (facts.requested, facts.total, facts.free, facts.held)):
        return without_numbers(context)
    return classify(facts)
