"""README.md: its examples show the current output, its Python runs, and its links have targets."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re

import pytest


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/oom.md"])
def test_examples_show_the_current_output(root, page):
    spec = importlib.util.spec_from_file_location("readme_excerpt", root / "docs" / "readme_excerpt.py")
    excerpt = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(excerpt)
    assert root / page in excerpt.PAGES
    blocks = list(excerpt.BLOCK.finditer((root / page).read_text(encoding="utf-8")))
    assert blocks
    for block in blocks:
        assert len(block[0].splitlines()) >= 12
        assert excerpt.fresh(block) == block[0], (
            f"the output of memdiag {block['command']} has changed: run `make readme`"
        )


def test_the_readme_is_short(readme):
    assert len(readme.splitlines()) <= 150


def test_the_python_example_runs(root, readme, monkeypatch):
    monkeypatch.chdir(root)
    program = next(code for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "memdiag.load" in code)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {})  # noqa: S102 - our own README
    assert "reserved" in printed.getvalue()


def test_links_in_documents_lead_somewhere(root):
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").glob("*.md")]
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
