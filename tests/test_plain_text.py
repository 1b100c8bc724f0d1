from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.text import in_ascii, plain, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py:35 forward", "train.py:35 forward"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2066x\u2069\u200b\ufeff", "\\u2066x\\u2069\\u200b\\ufeff"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("line\u2028sep", "line\\u2028sep"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
        ("no\xa0break", "no\\xa0break"),
        ("模型.py", "模型.py"),
        ("[bold]x[/]", "[bold]x[/]"),
        (12, "12"),
    ],
)
def test_plain(text, shown):
    assert plain(text) == shown


@given(st.text(st.characters(), max_size=60), st.integers(1, 20))
def test_plain_never_lets_a_control_character_through(text, limit):
    shown = plain(text)
    assert all(char == " " or unicodedata.category(char)[0] not in "CZ" for char in shown)
    assert len(plain(text, limit)) <= limit


def test_shorten_keeps_both_ends():
    assert shorten("/home/me/project/model.py", 12) == "/hom…odel.py"
    assert shorten("short", 12) == "short"


def test_in_ascii_keeps_the_width_of_drawings():
    drawing = "█▓▒▚░· ▼▲─│┤└…"
    assert len(in_ascii(drawing)) == len(drawing)
    assert len(set(in_ascii("█▓▒▚░·"))) == 6
    assert in_ascii("模").isascii()
    assert in_ascii("3 → 5 ± 1") == "3 -> 5 +- 1"
