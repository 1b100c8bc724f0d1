"""README.md is short, and links in documents have targets."""

from __future__ import annotations

import re

import pytest


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short(readme):
    assert len(readme.splitlines()) <= 150


def test_links_in_documents_lead_somewhere(root):
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").glob("*.md")]
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
