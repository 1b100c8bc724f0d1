"""``memdiag explain`` prints the pages of the documentation from the installed package."""

from __future__ import annotations

import json
import tomllib

import pytest

from memdiag import manual
from memdiag.cli.main import COMMANDS, main


def test_a_code_in_any_case_or_its_digits(capsys):
    for name in ("MD201", "md201", "201"):
        assert main(["explain", name]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("MD201  free memory in blocks too small")
        for heading in ("What it means", "Why it matters", "How to fix it", "When not to"):
            assert f"\n{heading}\n" in shown
        assert "](" not in shown


def test_every_page_is_listed_and_shown(root, capsys):
    assert main(["explain"]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    files = {path.stem for path in [*(root / "docs").glob("*.md"), *(root / "docs" / "findings").glob("*.md")]} - {
        "README"
    }
    assert files <= listed
    assert main(["explain", *sorted(files)]) == 0
    assert len(capsys.readouterr().out) > 100_000


@pytest.mark.parametrize("name", ["MD801", "hygiene"])
@pytest.mark.parametrize("width", [60, 80])
def test_text_fits_but_for_lines_to_copy(monkeypatch, capsys, name, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["explain", name]) == 0
    assert max(len(line) for line in capsys.readouterr().out.splitlines() if not line.startswith("    ")) <= width


@pytest.mark.parametrize(("name", "meant"), [("MD2011", "MD201"), ("fragmentaton", "fragmentation")])
def test_a_name_that_does_not_exist(name, meant, capsys):
    assert main(["explain", name]) == 2
    assert f"did you mean {meant}" in capsys.readouterr().err


def test_guides_are_pages(root, capsys):
    guides = sorted(path.stem for path in (root / "docs" / "how-to").glob("*.md"))
    assert guides
    assert set(guides) <= set(manual.names())
    assert main(["explain", "ci-gate"]) == 0
    assert "<!--" not in capsys.readouterr().out


def test_json(capsys):
    assert main(["explain", "MD201", "conf", "--json"]) == 0
    pages = json.loads(capsys.readouterr().out)["pages"]
    assert [page["name"] for page in pages] == ["MD201", "conf"]
    assert pages[0]["text"].startswith("# MD201: ")


def test_an_installation_without_pages(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(manual, "_PLACES", (tmp_path,))
    manual.names.cache_clear()
    try:
        assert main(["explain", "MD201"]) == 2
        assert "this installation does not contain the documentation" in capsys.readouterr().err
        assert manual.find("MD201") is None
    finally:
        manual.names.cache_clear()


def test_the_wheel_contains_the_pages(root):
    wheel = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    assert {"/memdiag", "/docs/*.md", "/docs/findings/*.md", "/docs/how-to/*.md", "/docs/zh/*.md"} <= set(
        wheel["include"]
    )
    assert wheel["sources"] == {"docs": "memdiag/docs"}
    assert manual._PLACES[0] == root / "memdiag" / "docs"


def test_help_names_no_file_that_is_not_installed(capsys):
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
        assert "docs/" not in capsys.readouterr().out, command


def test_parts_of_a_page():
    text = "# MD1: t\n\nA [link](b.md) and\nmore.\n\n1. one\n   two\n\n       code here\n\n2. three\n\n    alone\n\n"
    text += "| a | b |\n|---|---|\n| c | d |\n\n```python\nx = 1\n\ny = 2\n```\n## Next\nend\n"
    assert [(block.kind, block.text) for block in manual.blocks(text)] == [
        ("paragraph", "A link and more."),
        ("item", "1. one two"),
        ("code", "code here"),
        ("item", "2. three"),
        ("code", "alone"),
        ("table", "| a | b |\n| c | d |"),
        ("code", "x = 1\n\ny = 2"),
        ("heading", "Next"),
        ("paragraph", "end"),
    ]
