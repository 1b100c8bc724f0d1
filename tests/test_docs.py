"""Every command has a page, every page is in the site, and the two READMEs name the same commands."""

from __future__ import annotations

import re

import pytest
import typer

import memdiag
from memdiag.cli import main

COMMANDS = sorted(main.COMMANDS)
EVERYWHERE = {"--help", "-h", "--redact", "--lang"}
_CALL = re.compile(rf"(?:^ +|^\$ |`)memdiag ({'|'.join(COMMANDS)})\b([^\n`]*)", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_page_in_the_site(root, name):
    page = root / "docs" / f"{name}.md"
    assert page.is_file()
    assert f"memdiag {name}" in page.read_text(encoding="utf-8")
    assert f": {name}.md" in (root / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_is_in_the_site_and_in_the_table_of_pages(root):
    folder = root / "docs"
    pages = {path.relative_to(folder).as_posix() for path in (*folder.glob("*.md"), *folder.glob("how-to/*.md"))} - {
        "README.md"
    }
    site, table = ((root / name).read_text(encoding="utf-8") for name in ("mkdocs.yml", "docs/README.md"))
    assert {page for page in pages if f": {page}" not in site} == set()
    assert {page for page in pages if f"({page})" not in table} == set()


def test_the_python_api_is_in_the_site(root):
    exported, results = ((root / "docs" / "api" / name).read_text("utf-8") for name in ("README.md", "results.md"))
    for name in set(memdiag.__all__) - {"__version__"}:
        assert f"::: {getattr(memdiag, name).__module__}.{getattr(memdiag, name).__name__}\n" in exported, name
    modules = {path.stem for path in (root / "memdiag" / "results").glob("*.py")} - {"__init__"}
    assert set(re.findall(r"^::: memdiag\.results\.(\w+)$", results, re.MULTILINE)) == modules


@pytest.fixture(scope="module")
def options():
    """Returns the options of each command, as typed."""
    commands = typer.main.get_command(main.app_of()).commands
    return {
        name: [[*each.opts, *each.secondary_opts] for each in commands[name].params if each.opts[0][0] == "-"]
        for name in COMMANDS
    }


def test_commands_are_shown_with_options_that_they_have(root, options):
    pages = [
        *root.glob("*.md"),
        *(root / "docs").rglob("*.md"),
        *(root / "examples").glob("*.md"),
        *(root / "reports").glob("*.md"),
    ]
    unknown, seen = [], 0
    for page in pages:
        for name, rest in _CALL.findall(page.read_text(encoding="utf-8")):
            seen += 1
            own = re.split(r" -- | # |\|", rest)[0]  # the rest belongs to another program, or is text
            known = EVERYWHERE.union(*options[name])
            unknown += [
                f"{page.relative_to(root)}: memdiag {name}{rest}: {found}"
                for found in _OPTION.findall(own)
                if found not in known
            ]
    assert unknown == []
    assert seen > 200


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_its_page(root, options, name):
    named = set(_OPTION.findall((root / "docs" / f"{name}.md").read_text(encoding="utf-8")))
    if name == "simulate":  # options of offloading are on a separate page, under the names in JSON
        words = re.findall(r"`(\w+)`", (root / "docs" / "offload.md").read_text(encoding="utf-8"))
        named |= {f"--{word.replace('_', '-')}" for word in words}
    assert [own for own in options[name] if not named & set(own) and own[0] not in EVERYWHERE] == []


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_a_readme_speaks_of_commands_that_exist(root, name):
    text = (root / name).read_text(encoding="utf-8")
    spoken = set(re.findall(r"(?:^ +|`)memdiag ([a-z]+)", text, re.MULTILINE))
    assert spoken <= set(COMMANDS)
    assert {
        "record",
        "analyze",
        "simulate",
        "tune",
        "try",
        "compare",
        "check",
        "fleet",
        "view",
        "plot",
        "export",
        "lint",
    } <= spoken
