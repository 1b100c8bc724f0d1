from __future__ import annotations

import re

import pytest

from memdiag.render.analyze.md import render
from memdiag.render.support.look import Look
from memdiag.render.support.markdown import cell, code, escape


def outside_of_code(text):
    """Returns the text that markdown interprets: without code blocks and code spans."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", "", text)


def test_the_same_content_as_in_the_terminal(samples):
    shown = render(samples.rich())
    for part in (
        "Out of memory in backward",
        "218,044 events",
        "stranded",
        "MD201",
        "MD401",
        "MD301",
        "MD902",
        "a fifth line",
        "model.py:35",
        "| `layers.*.mlp` | 4.00 GiB | 44.0% | 96 |",
        "`layers.*.mlp.up.weight, layers.*.mlp.down.weight`",
        "phases, steps, categories: marked by the recorder",
    ):
        assert part in shown
    assert "```\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n```" in shown


def test_tables_have_equal_columns(samples):
    for name in ("rich", "hostile", "unknown", "several"):
        width = 0
        for line in render(getattr(samples, name)()).splitlines():
            if not line.startswith("|"):
                width = 0
                continue
            cells = len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", line)))
            width = width or cells
            assert cells == width, line


def test_hostile_names_stay_text(samples):
    shown = render(samples.hostile())
    assert all(char == "\n" or char.isprintable() for char in shown)
    loose = outside_of_code(shown)
    assert "<script" not in loose.replace("\\<script", "")
    assert not re.search(r"@\w", loose)
    assert not re.search(r"#\d", loose)
    assert not any(line.startswith("FAKE") for line in shown.splitlines())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("``", "``` `` ```"),
        ("", ""),
        ("  ", ""),
        ("\x1b", "`\\x1b`"),
    ],
)
def test_code(text, shown):
    assert code(text) == shown


def test_cell():
    assert cell("a|b") == "`a\\|b`"
    assert cell("a\\|b") == "a\\\\\\|b"


def test_escape():
    assert escape("*a* [x](y) <b> | @you #12 a_b") == "\\*a\\* \\[x\\](y) \\<b> \\| @<!-- -->you \\#<!-- -->12 a\\_b"


def test_no_ansi_and_ascii_on_request(samples):
    assert "\x1b" not in render(samples.rich(), Look(color=True))
    assert render(samples.rich(), Look(unicode=False)).isascii()
