"""Each page of a lint rule has a summary, the report on the code before the fix, and code after it without findings."""

from __future__ import annotations

import pytest

from memdiag.lint.files import check_text
from memdiag.registry import LINT_RULES
from tests.lint import page_examples


@pytest.fixture
def page(root, request):
    return (root / "docs" / "findings" / f"{request.param}.md").read_text(encoding="utf-8")


EVERY_PAGE = pytest.mark.parametrize(("page", "code"), [(code, code) for code in sorted(LINT_RULES)], indirect=["page"])


@EVERY_PAGE
def test_the_report_in_a_page_is_what_memdiag_prints(page, code):
    assert page_examples.BLOCK.search(page)[1] == page_examples.shown(code), (
        "write it again: python -m tests.lint.page_examples"
    )


@EVERY_PAGE
def test_the_fix_of_a_page_removes_the_place(page, code):
    found = {
        when: {each.code for each in check_text(text, "train.py")[0]}
        for when, text in page_examples.codes(page).items()
    }
    assert code in found["Before"]
    assert code not in found["After"]


@EVERY_PAGE
def test_a_page_begins_with_a_summary(page, code):
    assert page.startswith(f"# {code}: ")
    chinese, *summary = page.split("## What it means")[0].splitlines()[1:]
    assert chinese.startswith("<!-- zh: ")
    assert 1 <= len([line for line in summary if line]) <= 2
