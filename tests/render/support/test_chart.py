from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memdiag.render.support.bar import share_out, stacked_bar
from memdiag.render.support.chart import chart, columns, scale
from memdiag.results.report import Timeline
from memdiag.units import GIB, MIB


@pytest.mark.parametrize(
    ("highest", "step", "unit", "ticks"),
    [
        (11 * GIB, 2.5, "GiB", 5),
        (GIB, 0.2, "GiB", 5),
        (1000 * MIB, 200, "MiB", 5),
        (80 * GIB, 20, "GiB", 4),
        (1, 0.2, "B", 5),
    ],
)
def test_scale(highest, step, unit, ticks):
    assert (scale(highest)[0], scale(highest)[1], scale(highest)[3]) == (step, unit, ticks)


@given(st.integers(1, 2**60))
def test_scale_covers_the_highest_value_with_at_most_five_ticks(highest):
    step, _, unit_bytes, ticks = scale(highest)
    assert 1 <= ticks <= 5
    assert ticks * step * unit_bytes >= highest


@given(st.lists(st.integers(-1, 2**50), min_size=1, max_size=300), st.integers(1, 130))
def test_columns_lose_no_peak(values, width):
    drawn = columns(values, width)
    assert len(drawn) == width
    assert max(drawn) == max(values)


def test_the_areas_stand_in_front_of_each_other(samples):
    lines = [
        line.plain
        for line in chart(samples.device(timeline=Timeline(1.0, (4 * GIB,) * 4, (2 * GIB,) * 4, (GIB,) * 4)), 40)
    ]
    plot = [
        line[line.index("│") + 1 :] if "│" in line else line[line.index("┤") + 1 :]
        for line in lines
        if "│" in line or "┤" in line
    ]
    assert [row[0] for row in plot] == list("░░░░░░▒▒▒███")
    assert all(set(row) == {row[0]} for row in plot)


@pytest.mark.parametrize("width", [60, 78, 118, 130])
def test_no_line_is_wider_than_asked(samples, width):
    assert all(line.num_cells <= width for line in chart(samples.device(), width))


def test_axes_and_marks(samples):
    shown = "\n".join(line.plain for line in chart(samples.device(), 78))
    assert "peak: 11.00 GiB reserved, event 196,100 ▼" in shown
    assert "12.5 GiB ┤" in shown
    assert "218,044 events" in shown
    assert "▲" not in shown


def test_another_moment_is_marked(samples):
    device = samples.device(moment=samples.event(1000))
    assert "▲ chosen event: event 1,000" in "\n".join(line.plain for line in chart(device, 78))


@pytest.mark.parametrize("timeline", [None, Timeline(1.0, (), (), ()), Timeline(1.0, (-1, -1), (-1, -1), (-1, -1))])
def test_without_a_curve_there_is_no_chart(samples, timeline):
    assert chart(samples.device(timeline=timeline), 78) == []


def test_an_unknown_curve_is_neither_drawn_nor_in_the_legend(samples):
    shown = "\n".join(
        line.plain for line in chart(samples.device(timeline=Timeline(1.0, (-1, -1), (), (GIB, GIB))), 78)
    )
    assert "░" not in shown
    assert "reserved (" not in shown
    assert "█ allocated" in shown


@given(st.lists(st.integers(0, 2**50), min_size=6, max_size=6).filter(any), st.integers(20, 130))
def test_every_part_of_a_bar_shows_and_the_bar_is_full(amounts, width):
    cells = share_out(amounts, width)
    assert sum(cells) == width
    assert all((cell > 0) == (amount > 0) for cell, amount in zip(cells, amounts, strict=True))


def test_an_empty_bar():
    assert stacked_bar([("█", "", 0)], 10).plain == ""
