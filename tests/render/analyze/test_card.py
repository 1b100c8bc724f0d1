"""The verdict card has the same rows in every form, fits one terminal screen, and repeats no remedy."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from rich.cells import cell_len

from memdiag.analyzers.report import build_report
from memdiag.render import renderer
from memdiag.render.analyze.terminal import MOST_LINES, render
from memdiag.render.support import card
from memdiag.render.support.look import Look
from memdiag.results.finding import Fix
from memdiag.results.report import Verdict
from memdiag.sources import load


def said(text):
    """Returns text without the line breaks, indentation and escapes of a form."""
    return " ".join(text.replace("\\", "").split())


@pytest.mark.parametrize("form", ["terminal", "full", "md"])
def test_every_form_begins_with_the_card(samples, form):
    report = samples.rich()
    shown = said(renderer("analyze", form)(report, Look(width=120)))
    begin = shown[: shown.index("trace.pkl")]
    for row in card.rows(report.verdict):
        assert said(row.text) in begin
        assert row.command in begin
    assert said(report.verdict.summary) in begin


@pytest.mark.parametrize("form", ["terminal", "full"])
def test_a_terminal_ends_with_what_to_do_and_what_it_gives(samples, form):
    shown = renderer("analyze", form)(samples.rich(), Look(width=100)).splitlines()
    last = said(" ".join(shown[-6:]))
    verdict = samples.rich().verdict
    for part in ("CRITICAL", verdict.remedy, verdict.command, verdict.prediction):
        assert part in last


def test_json_has_the_card_as_an_object(samples):
    shown = json.loads(renderer("analyze", "json")(samples.rich()))
    assert shown["verdict"] == asdict(samples.VERDICT)
    assert list(shown).index("verdict") < list(shown).index("source")


@pytest.mark.parametrize("width", [60, 80, 100, 132])
@pytest.mark.parametrize("sample", ["rich", "unknown", "several", "hostile"])
def test_the_default_is_one_screen(samples, sample, width):
    lines = render(getattr(samples, sample)(), Look(width=width)).splitlines()
    assert len(lines) <= MOST_LINES
    pasted = ("export", "memdiag analyze", "torch.cuda")
    assert [line for line in lines if cell_len(line) > width and not line.strip().startswith(pasted)] == []


def test_the_default_is_one_screen_of_every_recording(goldens):
    for path in sorted(goldens.glob("*/*.p*kl*")):
        report = build_report(load(path))
        for width in (60, 80):
            assert len(render(report, Look(width=width)).splitlines()) <= MOST_LINES, path


def test_no_remedy_is_listed_twice(samples):
    report = samples.rich()
    finding = report.findings[-1]
    again = replace(finding, code="MD202", fixes=(*finding.fixes, Fix("A third", "code")))
    report = replace(report, findings=(*report.findings, again))
    titles = [fix.title for _, fix in card.remedies(report)]
    assert titles[0] == report.verdict.remedy
    assert len(titles) == len(set(titles))
    assert "A third" in titles


def test_a_report_without_a_card_gets_severity_and_headline(samples):
    report = replace(samples.rich(), verdict=None)
    made = card.verdict_of(report)
    assert made == Verdict("critical", report.headline)
    assert card.rows(made) == []
