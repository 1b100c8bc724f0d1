"""Out-of-memory messages for programs: keys, order and units as documented in docs/oom-json.md, ``schema_version`` 1.

Fields contain only printed numbers; an unknown part of the ledger is null. Plain ASCII JSON, as from ``memdiag
analyze``.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from memdiag.render.support.json import as_json, finding_dict
from memdiag.render.support.look import PLAIN, Look
from memdiag.results.oom import Message, OomReport
from memdiag.version import __version__


def render(
    report: OomReport,
    look: Look = PLAIN,  # noqa: ARG001 - every form takes the same arguments
    *,
    every: bool = False,  # noqa: ARG001
    top: int = 10,  # noqa: ARG001
    verbose: bool = False,  # noqa: ARG001
) -> str:
    """Returns the report as one JSON object, indented, with a newline at its end. It always contains all messages."""
    return json.dumps(as_dict(report), indent=2, allow_nan=False) + "\n"


def as_dict(report: OomReport) -> dict[str, Any]:
    """Returns the report as ``memdiag oom --json`` shows it: dicts, lists, str, int, float, bool and None only."""
    shown = {
        "schema_version": report.schema_version,
        "memdiag_version": __version__,
        "sources": list(report.sources),
        "trace": report.trace or None,
        "num_lines": report.num_lines,
        "num_bytes": report.num_bytes,
        "first_rank": report.first_rank,
        "num_warnings_left_out": report.num_warnings_left_out,
        "num_left_out": report.num_left_out,
        "messages": [_message(message) for message in report.messages],
    }
    result: dict[str, Any] = as_json(shown)
    return result


def _message(message: Message) -> dict[str, Any]:
    judgement = message.judgement
    return {
        "dialect": message.dialect,
        "framework": message.framework,
        "backend": message.backend,
        "rank": message.rank,
        "count": message.count,
        "source": message.source,
        "line": message.line,
        "text": message.text,
        "fields": dict(message.fields),
        "verdict": judgement.verdict,
        "confidence": judgement.confidence,
        "alternatives": list(judgement.alternatives),
        "reasons": list(judgement.reasons),
        "is_warning": message.is_warning,
        "ledger": [asdict(entry) for entry in message.ledger],
        "findings": [finding_dict(finding) for finding in message.findings],
    }
