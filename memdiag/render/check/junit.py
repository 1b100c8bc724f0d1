r"""The result of a check as JUnit XML, which CI systems show as tests: a case for each metric of each trace.

XML 1.0 does not allow control characters, even escaped: they are written as text like ``\x1b``.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from memdiag.render.check.words import holder_words, title
from memdiag.render.support.look import PLAIN, Look
from memdiag.text import phrase, plain

if TYPE_CHECKING:
    from memdiag.results.check import CheckReport, DeviceCheck, MetricJudgement


def render(report: CheckReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns the report as one XML document; ``look`` is not used."""
    cases = [line for each in report.traces for line in _cases(each)]
    cases += [_case(key, "given", _error(phrase("check.not_given"))) for key in report.missing]
    failures = sum(judgement.status == "failed" for each in report.traces for judgement in each.checks)
    errors = sum(judgement.status == "unknown" for each in report.traces for judgement in each.checks)
    errors += sum(bool(each.error) for each in report.traces) + len(report.missing)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}" skipped="0" time="0"'
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuites name="memdiag" {counts}>',
            f'<testsuite name="memdiag check" {counts}>',
            *cases,
            "</testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _cases(each: DeviceCheck) -> list[str]:
    cases = (
        [_case(each.key, "readable" if each.device is None else "in the baseline", _error(each.error))]
        if each.error
        else []
    )
    return cases + [
        _case(each.key, f"{judgement.metric} ({judgement.kind})", _outcome(each, judgement))
        for judgement in each.checks
    ]


def _case(key: str, name: str, inside: str) -> str:
    return f'<testcase classname="{text(f"memdiag.{key}")}" name="{text(name)}" time="0">{inside}</testcase>'


def _outcome(each: DeviceCheck, judgement: MetricJudgement) -> str:
    if judgement.status == "unknown":
        return _error(judgement.reason)
    if judgement.status == "ok":
        return f"<system-out>{text(judgement.reason)}</system-out>"
    lines = [judgement.reason, each.path]
    if each.sites:
        lines += [phrase("check.title", title=title(each)), *(f"  {holder_words(holder)}" for holder in each.sites)]
    return (
        f'<failure type="{text(judgement.kind)}" '
        f'message="{text(judgement.reason)}">{chr(10).join(text(line) for line in lines)}</failure>'
    )


def _error(reason: str) -> str:
    return f'<error type="not judged" message="{text(reason)}"/>'


def text(value: str) -> str:
    """Returns text that is safe in XML, between tags and in quotes."""
    return escape(plain(value), quote=True)
