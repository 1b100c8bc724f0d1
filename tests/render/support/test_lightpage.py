from __future__ import annotations

import pytest

from memdiag.render.support.lightpage import LightPage, cells, wrap
from memdiag.render.support.look import Look


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("", 5, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("ab cdefghij k", 4, ["ab", "cdef", "ghij", "k"]),
        ("a  b", 10, ["a  b"]),
        ("内存不足 内存", 8, ["内存不足", "内存"]),
        ("内存不足", 5, ["内存", "不足"]),
        ("内", 1, ["内"]),
        ("多个词 and 更多。", 10, ["多个词 and", "更多。"]),
        ("四个汉字。", 8, ["四个汉", "字。"]),
        ("key:1,other:2,third:3", 12, ["key:1,", "other:2,", "third:3"]),
    ],
)
def test_wrap(text, width, lines):
    assert wrap(text, width) == lines


@pytest.mark.parametrize(("text", "columns"), [("", 0), ("abc", 3), ("内存", 4), ("e\u0301", 1), ("█·", 2)])
def test_cells(text, columns):
    assert cells(text) == columns


def test_a_grid_aligns_and_wraps_its_last_column():
    page = LightPage(Look(width=60))
    page.grid("lrw", [("a", "1.00 GiB", "words " * 12), ("内存", "22.00 GiB", ("end", "bold"))])
    assert page.finish().splitlines() == [
        "  a      1.00 GiB  words words words words words words words",
        "                   words words words words words",
        "  内存  22.00 GiB  end",
    ]


def test_styles():
    page = LightPage(Look(color=True))
    page.text("x", "bold red")
    page.spans([("a", "dim"), ("b", ""), ("", "bold")])
    assert page.finish() == "\x1b[1;31mx\x1b[0m\n\x1b[2ma\x1b[0mb\n"


def test_a_line_to_paste_is_never_broken():
    page = LightPage(Look(width=60))
    page.paste("x" * 200, indent=4)
    assert page.finish() == "    " + "x" * 200 + "\n"


def test_a_grid_is_aligned_where_there_is_ascii_only():
    page = LightPage(Look(width=60, unicode=False))
    page.grid("ll", [("3 → 5", "a"), ("内", "b"), ("12345678", "c")])
    assert page.finish().splitlines() == ["  3 -> 5    a", "  \\u5185    b", "  12345678  c"]


@pytest.mark.parametrize("width", [40, 50, 80])
def test_a_grid_keeps_to_the_width(width):
    page = LightPage(Look(width=width))
    page.grid(
        "lrrr",
        [
            ["", ("recorded", "bold"), "simulated", "difference"],
            ["peak reserved", "10.00 GiB", "9.50 GiB", "-512.00 MiB"],
        ],
    )
    page.grid("llw", [["a label", "another label", "words " * 20]])
    lines = page.finish().splitlines()
    assert max(map(cells, lines)) <= width
    assert " ".join(" ".join(lines).split()).startswith(
        "recorded simulated difference peak reserved 10.00 GiB 9.50 GiB -512.00 MiB a label"
    )
