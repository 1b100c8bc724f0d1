"""The whole way: from text or files to a report."""

from __future__ import annotations

from memdiag.oom.advice import advise
from memdiag.oom.dialects import dialects
from memdiag.oom.ledger import account
from memdiag.oom.lines import read_line
from memdiag.oom.model import Message, OomReport
from memdiag.oom.squeezed import Squeezed
from memdiag.oom.verdict import judge


def read_text(text: str) -> OomReport:
    """Returns what is found in ``text``."""
    lines = [read_line(number, raw) for number, raw in enumerate(text.splitlines(), 1)]
    squeezed = Squeezed(lines)
    messages = []
    for dialect in dialects():
        for found in dialect.find(squeezed):
            line = squeezed.line_at(found.start)
            judgement = judge(found, text)
            fields = dict(found.fields)
            if line.rank is not None:
                fields["rank"] = line.rank
            messages.append(
                Message(
                    found.dialect, found.framework, found.backend, line.rank, 1, line.number,
                    squeezed.original(found.start, found.end), fields, judgement, account(found), advise(found, judgement), "text",
                )
            )  # fmt: skip
    return OomReport(tuple(messages), ("text",), len(lines), len(text.encode()))
