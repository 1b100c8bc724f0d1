"""Actions for an out-of-memory message: the remedy to try first, alternatives, useless ones, and the next commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memdiag.quoting import file_argument
from memdiag.render.oom.words import cause_name, is_shortage
from memdiag.results.finding import Finding, Fix
from memdiag.results.oom import Message
from memdiag.text import phrase, plain

RECORD = "memdiag record -- python train.py"
_RECORDS_THIS = "memdiag record -- "  # records the failed program; "memdiag record --phantom" records another
_FUTILE = "MD708"  # the hint in the message does not help
_CAUSES = {
    "MD701": "fragmentation",
    "MD702": "capacity",
    "MD703": "other_process",
    "MD704": "limit",
    "MD705": "workspace_or_comm",
    "MD706": "host",
}
LONGEST_TITLE = 300


class ShownRemedy(NamedTuple):
    """A remedy, its finding, and the title of its section."""

    section: str
    fix: Fix
    finding: Finding


def fixes_of(finding: Finding) -> list[Fix]:
    """Returns the remedies of a finding, except recording the run, which is a next step."""
    return [fix for fix in finding.fixes if fix.kind != "record"]


def remedies(message: Message) -> list[ShownRemedy]:
    """Returns all remedies: the one to try first, then alternatives, with the best one for another cause second."""
    findings = [finding for finding in message.findings if fixes_of(finding)]
    if not findings:
        return []
    first, *others = (ShownRemedy(phrase("oom.otherwise"), fix, findings[0]) for fix in fixes_of(findings[0]))
    further = [
        ShownRemedy(_section(finding, message.judgement.verdict), fix, finding)
        for finding in findings[1:]
        for fix in fixes_of(finding)
    ]
    return [first, *others[:1], *further[:1], *others[1:], *further[1:]]


def _section(finding: Finding, verdict: str) -> str:
    cause = _CAUSES.get(finding.code)
    if cause == verdict:  # the same cause, after a finding from a trace
        return phrase("oom.otherwise")
    if cause:
        return phrase("oom.if.cause", cause=cause_name(cause))
    return phrase("oom.also", title=plain(finding.title, LONGEST_TITLE))


def by_section(remedies: Sequence[ShownRemedy]) -> dict[str, list[ShownRemedy]]:
    """Returns remedies by the title of their section, in the order of their first ones."""
    found: dict[str, list[ShownRemedy]] = {}
    for remedy in remedies:
        found.setdefault(remedy.section, []).append(remedy)
    return found


def futile(message: Message) -> list[str]:
    """Returns the remedies not worth trying: titles of findings about a hint that cannot help."""
    return [plain(finding.title, LONGEST_TITLE) for finding in message.findings if finding.code == _FUTILE]


def next_steps(message: Message, trace: str = "") -> list[tuple[str, str]]:
    """Returns pairs of a purpose and lines to paste, which run as printed.

    They show how to see the contents of memory, if that helps.

    Args:
        message: The message that is explained.
        trace: The trace that was read with it, or "".
    """
    if trace:
        file = file_argument(plain(trace))
        if message.moment:
            return [(phrase("oom.next.moment"), f"memdiag analyze {file} {message.moment}")]
        return [(phrase("oom.next.trace"), f"memdiag analyze {file}")]
    if message.dialect == "trace" or message.judgement.verdict in {"other_process", "host"} or not is_shortage(message):
        return []
    recording = [fix for finding in message.findings for fix in finding.fixes if fix.kind == "record"]
    on_torch = message.framework in {"pytorch", "torch_npu"} and message.backend in {"cuda", "hip", "npu"}
    runs = [fix.change.splitlines() for fix in recording if fix.change.startswith(_RECORDS_THIS)]
    if not runs and (recording or not on_torch):
        return [(_in_a_sentence(fix.title), fix.change) for fix in recording[:1]]
    line = runs[0][0] if runs else RECORD
    log = plain(message.source)
    given = file_argument(log) + " " if log not in {"", "-", "text"} else ""
    after = [fix for fix in recording if fix.change.startswith(f"{line}\nmemdiag simulate")]
    return [
        (phrase("oom.next.record"), f"{line}\nmemdiag oom {given}--from-trace ."),
        *((_in_a_sentence(fix.title), fix.change.split("\n", 1)[1]) for fix in after),
    ]


def _in_a_sentence(title: str) -> str:
    shown = plain(title)
    return shown[:1].lower() + shown[1:]
