"""Totals by category and lifetime, their bar, and the map: sizes add up, lengths are to scale, and lines fit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import memdiag
from memdiag import vocabulary
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.tui.lists import MAP, TENSORS, Lists
from memdiag.tui.status_lines import FEWEST, NUM_LINES, WITH_BAR, status
from memdiag.tui.tensor_lines import brief
from memdiag.tui.total_lines import bar, legend
from memdiag.tui.walk import Walk
from memdiag.units import format_bytes

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt-train.pickle"
AMOUNTS = [("activation", 6 << 30), ("parameter", 3 << 30), ("optimizer_state", 1 << 30), ("unknown", 5)]


@pytest.fixture(scope="module")
def walk():
    return Walk(memdiag.load(EXAMPLE))


def test_totals_are_the_active_bytes(walk):
    here = walk.here
    for at in (-1, 0, walk.here.places.peak, here.device.num_events // 2, here.device.num_events - 1):
        walk.go(at)
        for _ in range(2):
            assert sum(size for _, size in walk.totals()) == here.device.usage_at(at)["active"]
            assert walk.totals() == sorted(walk.totals(), key=lambda item: -item[1])
            walk.next_by()
    assert walk.by == "category"


@pytest.mark.parametrize(
    "name", ["cuda-2.13.0-streams", "npu-2.13.0-workspace", "cuda-2.13.0-no-trace", "cpu-2.13.0-recorded"]
)
def test_totals_of_other_backends_are_the_active_bytes(name, goldens):
    there = Walk(memdiag.load(goldens / name / "snapshot.pickle"))
    device = there.here.device
    active = device.usage_at(there.at)["active"] if device.num_events else device.end["active"]
    assert sum(size for _, size in there.totals()) == active


@pytest.mark.parametrize("width", range(10, 140, 7))
@pytest.mark.parametrize("color", [False, True])
def test_the_legend_fits_its_width_and_counts_omitted_entries(width, color):
    text = legend(AMOUNTS, "category", width, color=color).plain
    assert len(text) <= width
    shown = sum(brief(name) in text or vocabulary.name("category", name) in text for name, _ in AMOUNTS)
    if width >= 30:
        assert "activation 6.00 GiB" in text
        assert text.endswith(f"+{len(AMOUNTS) - shown} more") == (shown < len(AMOUNTS))
    if width >= 110:
        assert (shown, "activation 6.00 GiB 60%" in text) == (len(AMOUNTS), True)
    assert legend([], "category", width, color=color).plain == "no live tensor"[:width]


def test_the_bar_is_to_scale():
    line = bar(AMOUNTS, {"cache": 8 << 30, "stranded": 2 << 30, "foreign": 0}, "category", 81, color=True)
    lengths = Counter()
    for span in line.spans:
        lengths[span.style] += span.end - span.start
    assert line.cell_len == 81
    for name, share in (("activation", 0.3), ("parameter", 0.15), ("optimizer_state", 0.05)):
        assert abs(lengths[vocabulary.color("category", name)] - 81 * share) <= 1.5
    assert lengths[vocabulary.color("part", "stranded")] == 8
    assert vocabulary.color("part", "foreign") not in lengths
    letters = bar(AMOUNTS, {"cache": 8 << 30}, "category", 80, color=False).plain
    assert "".join(sorted(set(letters))) == "".join(sorted("apou" + vocabulary.STYLES["part"]["cache"].glyph))


def test_letters_differ_within_a_kind():
    for by, names in (("category", CATEGORIES), ("lifetime", LIFETIMES)):
        letters = [bar([(name, 1)], {}, by, 1, color=False).plain for name in names]
        assert len(set(letters)) == len(names)


def test_the_bar_is_shown_if_there_is_a_line_for_it(walk):
    walk.to_peak()
    few, more = status(walk, 120), status(walk, 120, WITH_BAR)
    assert [line.plain for line in status(walk, 120, FEWEST)] == [line.plain for line in few[:FEWEST]]
    assert (len(few), len(more)) == (NUM_LINES, WITH_BAR)
    assert [line.plain for line in more if line.plain not in {each.plain for each in few}] == [more[3].plain]
    assert more[3].cell_len == 120
    for line in few[1:3]:  # the legend of the timeline and of the bar
        assert any(
            style.glyph in line.plain for kind in ("curve", "part") for style in vocabulary.STYLES[kind].values()
        )


def test_segments_are_drawn_to_one_scale(walk):
    walk.to_peak()
    lists = Lists(walk)
    found = lists.lines(MAP)
    head = found.head(120).plain
    assert "one character:" in head
    room = 120 - head.index("one character:")
    sizes = [found.rows.segment(number).size for number in found.rows.in_order()]
    bars = [len(found.line(row, 120).plain.rstrip()[head.index("one character:") :]) for row in range(len(sizes))]
    assert max(bars) == room
    for size, drawn in zip(sizes, bars, strict=True):
        assert abs(drawn - size / max(sizes) * room) <= 1
    assert format_bytes(-(-max(sizes) // room)) in head
    lists.next_scale()
    wide = lists.lines(MAP)
    assert {len(wide.line(row, 120).plain[head.index("one character:") :]) for row in range(len(sizes))} == {room}


def test_colours_follow_the_chosen_grouping(walk):
    lists = Lists(walk)
    assert "colours by category" in lists.summary(MAP)
    before = lists.lines(TENSORS).line(0, 120).spans
    walk.next_by()
    assert "colours by lifetime" in lists.summary(MAP)
    assert before != lists.lines(TENSORS).line(0, 120).spans
    drawn = {str(span.style) for row in range(10) for span in lists.lines(MAP).line(row, 120).spans}
    assert drawn & {vocabulary.color("lifetime", name) for name in LIFETIMES}
    walk.next_by()
