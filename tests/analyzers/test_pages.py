"""Every finding code has a page whose title is its meaning, and the index lists all pages."""

import ast
import importlib.util
import json
import re
import textwrap

import pytest

from memdiag.analyzers.support import offered
from memdiag.oom import advice
from memdiag.registry import ANALYZERS, LINT_RULES
from memdiag.settings import lint
from memdiag.text import FOLDER
from tests.analyzers import page_examples

_SPEC = importlib.util.spec_from_file_location("indexes", page_examples.ROOT / "docs" / "site" / "indexes.py")
indexes = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(indexes)

CODES = (
    {code: meaning for analyzer in ANALYZERS.values() for code, meaning in analyzer.CODES.items()}
    | lint.CODES
    | advice.CODES
)
CODES |= offered.CODES
SECTIONS = ("## What it means", "## Why it matters", "## How to fix it", "## When not to")


@pytest.fixture
def pages(root):
    return {path.stem: path.read_text(encoding="utf-8") for path in (root / "docs" / "findings").glob("MD*.md")}


@pytest.mark.parametrize("code", sorted(CODES))
def test_the_page_of_a_finding_is_titled_with_its_meaning_and_complete(pages, code):
    page = pages[code]
    assert page.splitlines()[0] == f"# {code}: {CODES[code]}"
    assert [line for line in page.splitlines() if line.startswith("## ")] == list(SECTIONS)


@pytest.mark.parametrize("code", sorted(set(CODES) - set(advice.CODES)))
def test_a_title_is_short(code):
    assert len(CODES[code].split()) <= 10, CODES[code]
    assert not CODES[code].endswith(".")


@pytest.mark.parametrize("code", sorted({*page_examples.examples(), *page_examples.CONF}))
def test_the_report_in_a_page_is_what_memdiag_prints(pages, code):
    assert page_examples.block(pages[code])[1] == page_examples.shown(code), (
        "write it again: python -m tests.analyzers.page_examples"
    )


@pytest.mark.parametrize("code", sorted({*page_examples.examples(), *page_examples.CONF}))
def test_a_page_with_an_example_begins_with_a_summary(pages, code):
    chinese, *summary = pages[code].split("## What it means")[0].splitlines()[1:]
    assert chinese.startswith("<!-- zh: ")
    assert 1 <= len([line for line in summary if line]) <= 3


@pytest.mark.parametrize("code", sorted(LINT_RULES))
def test_the_page_of_a_habit_is_complete(pages, code):
    assert [line for line in pages[code].splitlines() if line.startswith("## ")] == list(SECTIONS)


def test_the_page_of_a_note_says_what_it_limits(pages):
    for code, page in pages.items():
        if code not in CODES and code not in LINT_RULES:
            assert code.startswith("MD9")
            assert [line for line in page.splitlines() if line.startswith("## ")] == [
                "## What it means",
                "## What it limits",
                "## What to do",
            ]


def test_the_note_in_a_page_has_the_current_words(pages):
    """The example of a note is an English phrase of memdiag/messages/notes.json with its placeholders filled."""
    phrases = json.loads((FOLDER / "notes.json").read_text(encoding="utf-8")).values()
    forms = [".*?".join(map(re.escape, re.split(r"\{[^{}]*\}", each["en"]))) for each in phrases]
    for code, page in pages.items():
        shown = page_examples.block(page)
        if code in CODES or code in LINT_RULES or shown is None:
            continue
        note = shown[1].removeprefix(f"{code}  ")
        if note.endswith("…"):  # the rest is omitted
            assert any(
                note[:30].startswith(each["en"].split("{")[0][:30]) for each in phrases if each["en"][0] != "{"
            ), code
        else:
            assert any(re.fullmatch(rf"(device \d+: )?{form}( \(.*\))?", note) for form in forms if len(form) > 30), (
                code
            )


def test_python_in_a_page_is_python(pages):
    for code, page in pages.items():
        for _, block in re.findall(r"^( *)```python\n(.*?)^\1```", page, re.MULTILINE | re.DOTALL):
            ast.parse(textwrap.dedent(block), code)


def test_the_index_of_the_site_lists_every_page_with_its_title(pages):
    listed = dict(re.findall(r"^\| \[(MD\d{3})\]\(\1\.md\) \| (.*) \|$", indexes.index(chinese=False), re.MULTILINE))
    assert listed == {code: page.splitlines()[0].split(": ", 1)[1] for code, page in pages.items()}
    for chinese in (False, True):
        text = indexes.index(chinese=chinese)
        assert len(re.findall("^## ", text, re.MULTILINE)) == len(indexes.GROUPS)
        assert list(re.findall(r"\[(MD\d{3})\]", text)) == sorted(pages)


def test_other_pages_list_findings_by_the_same_titles(root, pages):
    for path in (root / "docs").glob("*.md"):
        for code, title in re.findall(
            r"^\| \[(MD\d{3})\]\(findings/\1\.md\) \| ([^|]*) \|$", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            assert title == pages[code].splitlines()[0].split(": ", 1)[1], f"{path.name}: {code}"


def test_links_between_pages_lead_somewhere(root):
    folder = root / "docs"
    for path in [folder / "fragmentation.md", folder / "hygiene.md", *(folder / "findings").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_habit_is_looked_for_somewhere(root):
    rows = re.findall(
        r"^\| (\d+) \| ([^|]+) \|(.*)\|$", (root / "docs" / "hygiene.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [int(number) for number, _, _ in rows] == list(range(1, 15))
    for _, habit, where in rows:
        named = re.findall(r"\[(MD\d{3})\]\(findings/\1\.md\)", where)
        assert named, habit
        assert set(named) <= set(CODES) | set(LINT_RULES)
