from __future__ import annotations

import pytest

from memdiag.render.support.line import StyledText, cells, wrap
from memdiag.render.support.look import Look
from memdiag.render.support.page import TerminalPage


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
    page = TerminalPage(Look(width=60))
    page.grid("lrw", [("a", "1.00 GiB", "words " * 12), ("内存", "22.00 GiB", ("end", "bold"))])
    assert page.finish().splitlines() == [
        "  a      1.00 GiB  words words words words words words words",
        "                   words words words words words",
        "  内存  22.00 GiB  end",
    ]


def test_styles():
    page = TerminalPage(Look(color=True))
    page.text("x", "bold red")
    page.spans([("a", "dim"), ("b", ""), ("", "bold")])
    assert page.finish() == "\x1b[1;31mx\x1b[0m\n\x1b[2ma\x1b[0mb\n"


def test_a_line_to_paste_is_never_broken():
    page = TerminalPage(Look(width=60))
    page.paste("x" * 200, indent=4)
    assert page.finish() == "    " + "x" * 200 + "\n"


def test_a_grid_is_aligned_where_there_is_ascii_only():
    page = TerminalPage(Look(width=60, unicode=False))
    page.grid("ll", [("3 → 5", "a"), ("内", "b"), ("12345678", "c")])
    assert page.finish().splitlines() == ["  3 -> 5    a", "  \\u5185    b", "  12345678  c"]


@pytest.mark.parametrize("width", [40, 50, 80])
def test_a_grid_keeps_to_the_width(width):
    page = TerminalPage(Look(width=width))
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


def test_columns_stay_beside_each_other_however_narrow_the_page_is():
    page = TerminalPage(Look(width=40))
    page.columns("lrw", [["a label", "1.00 GiB", "words " * 6], [StyledText("second").append(" piece", "dim"), "22 B"]])
    assert page.finish().splitlines() == [
        "  a label       1.00 GiB  words words",
        "                          words words",
        "                          words words",
        "  second piece      22 B",
    ]


def test_without_a_column_for_the_rest_the_widest_on_the_left_wraps():
    page = TerminalPage(Look(width=40))
    page.columns("lr", [["many words of a name that is long indeed", "10.00 GiB"], ["short", "1 B"]], indent=0)
    assert page.finish().splitlines() == [
        "many words of a name that is   10.00 GiB",
        "long indeed",
        "short                                1 B",
    ]


def test_a_line_in_several_styles_wraps_and_keeps_blanks_at_its_beginning():
    line = StyledText("  one two", "bold").append(" three four", "dim")
    assert [each.plain for each in line.wrapped(9)] == ["  one two", "three", "four"]
    assert [each.spans for each in line.wrapped(18)] == [
        [("  one two", "bold"), (" three", "dim")],
        [("four", "dim")],
    ]


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("fits here", 9, "fits here"),
        ("a long sentence", 8, "a long …"),
        ("it takes 384.00 MiB of memory", 16, "it takes…"),
        ("it takes 384.00 MiB of memory", 19, "it takes…"),
        ("it takes 384.00 MiB of memory", 21, "it takes 384.00 MiB …"),
        ("内存不足", 6, "内存…"),
    ],
)
def test_an_amount_is_left_out_rather_than_cut(text, width, short):
    shown = StyledText(text, "bold").shortened(width).plain
    assert shown == short
    assert cells(shown) <= width
