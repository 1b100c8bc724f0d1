"""Every command has a page, every page is in the site, and the two READMEs speak of the same commands."""

from __future__ import annotations

import re

import pytest

from memdiag.cli.main import app

COMMANDS = sorted(command.name for command in app.registered_commands)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_page_in_the_site(root, name):
    page = root / "docs" / f"{name}.md"
    assert page.is_file()
    assert f"memdiag {name}" in page.read_text(encoding="utf-8")
    assert f": {name}.md" in (root / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_is_in_the_site_and_in_the_table_of_pages(root):
    pages = {path.name for path in (root / "docs").glob("*.md")} - {"README.md"}
    site, table = ((root / name).read_text(encoding="utf-8") for name in ("mkdocs.yml", "docs/README.md"))
    assert {page for page in pages if f": {page}" not in site} == set()
    assert {page for page in pages if f"({page})" not in table} == set()


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_a_readme_speaks_of_commands_that_exist(root, name):
    text = (root / name).read_text(encoding="utf-8")
    spoken = set(re.findall(r"^ +memdiag ([a-z]+)", text, re.MULTILINE))
    assert spoken <= set(COMMANDS)
    assert {"record", "analyze", "simulate", "tune", "try", "compare", "check", "fleet", "view", "plot", "export", "lint"} <= spoken
