"""Out-of-memory messages for programs.

Fields contain only printed numbers; an unknown part of the ledger is null. Plain ASCII JSON, as from ``memdiag
analyze``.
"""

from __future__ import annotations

from typing import Any

from memdiag.render.oom.fields import MessageFields
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.shape import JsonLayout, Shape, ShapeKey
from memdiag.render.support.shapes import FINDING
from memdiag.results.oom import Cause, Confidence, Message, OomReport

_MESSAGE = Shape(
    Message,
    (
        "dialect",
        "framework",
        "backend",
        "rank",
        "count",
        "source",
        "line",
        "text",
        ShapeKey("fields", lambda message: message.fields, MessageFields, "The numbers that the message prints."),
        ShapeKey(
            "verdict", lambda message: message.judgement.verdict, Cause, "The most probable cause of the failure."
        ),
        ShapeKey(
            "confidence",
            lambda message: message.judgement.confidence,
            Confidence,
            (
                "high: the numbers leave no other cause; medium: they fit the cause but do not prove it; low: "
                "the message does not decide."
            ),
        ),
        ShapeKey(
            "alternatives",
            lambda message: message.judgement.alternatives,
            list[Cause],
            "Other possible causes, the more probable first.",
        ),
        ShapeKey(
            "reasons",
            lambda message: message.judgement.reasons,
            list[str],
            "Why memdiag found this cause: sentences with numbers, the decisive one first.",
        ),
        "is_warning",
        "ledger",
        "findings",
    ),
)

LAYOUT = JsonLayout(
    name="oom",
    title="memdiag oom --json",
    meaning="Out-of-memory messages, their causes and remedies.",
    version=2,
    root=OomReport,
    shapes=(
        Shape(
            OomReport,
            (
                "sources",
                "trace",
                "num_lines",
                "num_bytes",
                "first_rank",
                "num_warnings_omitted",
                "num_messages_omitted",
                "messages",
                "tables",
            ),
            null_if_empty=frozenset({"trace"}),
        ),
        _MESSAGE,
        FINDING,
    ),
)


def render(
    report: OomReport,
    look: Look = PLAIN,  # noqa: ARG001 - all forms have the same arguments
    *,
    every: bool = False,  # noqa: ARG001
    top: int = 10,  # noqa: ARG001
    verbose: bool = False,  # noqa: ARG001
) -> str:
    """Returns the report as one JSON object, indented, with a newline at its end. It always contains all messages."""
    return LAYOUT.text(report)


def as_dict(report: OomReport) -> dict[str, Any]:
    """Returns the report as ``memdiag oom --json`` shows it: dicts, lists, str, int, float, bool and None only."""
    return LAYOUT.as_dict(report)
