"""Every form of a Chinese report is Chinese, except for code, names and units."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import memdiag
from memdiag.registry import resolve
from memdiag.render.support.look import Look
from memdiag.text import speaking

EXAMPLE = Path(__file__).parents[3] / "examples" / "gpt-train.pickle"
FORMS = (
    "memdiag.render.analyze.full:render",
    "memdiag.render.analyze.terminal:render",
    "memdiag.render.analyze.md:render",
)
_ENGLISH = re.compile(r"\b[a-z]{3,}[ ,:]+[a-z]{3,}\b")
_NAMED = ("expandable segments", "memdiag ", "torch.nn.")  # names of settings, commands, and code to paste


@pytest.fixture(scope="module")
def report():
    with speaking("zh"):
        return memdiag.analyze(memdiag.load(EXAMPLE))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [60, 80])
def test_no_words_of_english_are_left(form, width, report):
    with speaking("zh"):
        shown = resolve(form)(replace(report, notes=()), Look(width=width))  # other tests cover the texts of notes
    lines = [line for line in shown.splitlines() if not any(name in line for name in _NAMED)]
    assert [line for line in lines if _ENGLISH.search(line)] == []


def test_a_report_made_in_english_is_shown_in_chinese(report):
    english = memdiag.analyze(memdiag.load(EXAMPLE))
    with speaking("zh"):
        assert resolve(FORMS[0])(english) == resolve(FORMS[0])(report)
