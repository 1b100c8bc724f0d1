"""Fleet reports in text, markdown and JSON show heat maps of any size in any width, and escape the text of files."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from memdiag.fleet.rollup import bins_of
from memdiag.render import renderer
from memdiag.render.fleet.words import SHADES, heat_rows
from memdiag.render.support.look import Look
from memdiag.results.fleet import FleetReport, GroupDifference, HeatMap, Outlier, Rank, SiteDifference, UnreadableFile
from memdiag.text import speaking

GB = 1 << 30

FORMS = ("terminal", "json", "md", "html")


def report_of(count, steps=3, **other):
    ranks = tuple(
        Rank(
            rank=rank,
            file=f"rank{rank}.pkl",
            group=0,
            device=0,
            capacity_bytes=64 * GB,
            peak_reserved_bytes=(10 + rank % 7) * GB,
            peak_allocated_bytes=9 * GB,
            headroom_bytes=(54 - rank % 7) * GB,
            is_out_of_memory=False,
            last_failure=None,
            num_retries=0,
            step=1,
            phase="forward",
            unused_bytes=GB,
            num_events=10,
            conf=None,
            torch_version="2.13.0",
            headline="",
        )
        for rank in range(count)
    )
    heat = HeatMap(
        "reserved",
        "step",
        tuple(map(str, range(steps))),
        tuple(range(count)),
        tuple((GB * (10 + rank % 7),) * steps for rank in range(count)),
    )
    bins = bins_of({row.rank: row.peak_bytes for row in ranks})
    return FleetReport(
        ("Everything is well.",),
        ranks,
        (),
        (),
        bins,
        (),
        heat,
        other.pop("unreadable", ()),
        other.pop("notes", ()),
        **other,
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_renderer_takes_a_report_and_a_look(form):
    render = renderer("fleet", form)
    assert "Everything is well" in render(report_of(3), Look(), 5)
    assert render(report_of(0), Look(), 5)


@pytest.mark.parametrize("width", [60, 80, 132])
@pytest.mark.parametrize("count", [2, 1024])
def test_it_keeps_to_the_width(count, width):
    text = renderer("fleet", "terminal")(report_of(count, steps=500), Look(width=width), 8)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) < 80


@pytest.mark.parametrize("width", [60, 80])
def test_ranks_that_stand_out_keep_to_the_width(width):
    report = report_of(64, steps=500)
    ranks = tuple(
        replace(row, is_out_of_memory=row.rank % 3 == 0, last_failure={"step": 1} if row.rank % 3 == 0 else None)
        for row in report.ranks
    )
    more = GroupDifference(
        "activation", "decoder.layers.*.mlp.experts.local_experts.*.linear_fc1", 40 * GB, 41 * GB, GB, 123_456, 12_345
    )
    odd = Outlier(
        tuple(range(1, 64, 3)),
        1,
        2,
        "reserved",
        40 * GB,
        "more",
        "40.00 GiB more",
        (more,),
        (SiteDifference("train.py:30 forward", GB),),
    )
    text = renderer("fleet", "terminal")(replace(report, ranks=ranks, outliers=(odd,)), Look(width=width), 8)
    assert "ran out" in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("form", ["terminal", "md"])
def test_it_speaks_chinese(form):
    with speaking("zh"):
        text = renderer("fleet", form)(report_of(3), Look(), 5)
    assert "各 rank 的预留峰值" in text
    assert "headroom" not in text.lower()


def test_plain_ascii():
    assert renderer("fleet", "terminal")(report_of(40), Look(unicode=False), 8).isascii()


def test_heat_rows_show_the_highest_of_many():
    report = report_of(100)
    rows, low, high = heat_rows(report, report.heatmap, 10, 80)
    assert (len(rows), rows[0].name, high) == (10, "0-9", 16 * GB)
    assert low <= 10 * GB
    assert all(row.shades == SHADES[-1] * 3 for row in rows)
    rows, _, _ = heat_rows(report, report.heatmap, 100, 2)
    assert {len(row.shades) for row in rows} == {2}
    assert len({row.shades for row in rows}) > 2


def test_small_differences_are_not_stretched():
    heat = HeatMap("reserved", "step", ("0",), (0, 1), ((1000,), (999,)))
    rows, low, _ = heat_rows(report_of(2), heat, 10, 10)
    assert low == 900
    assert [row.shades for row in rows] == [SHADES[-1]] * 2


def test_text_from_files_does_nothing():
    evil = "\x1b[31m|<script>`@someone"
    report = report_of(1, unreadable=(UnreadableFile(evil, None, evil, evil),), notes=(evil,))
    for form in FORMS:
        text = renderer("fleet", form)(report, Look(color=False), 5)
        assert "\x1b" not in text
        if form == "md":
            assert text.count("<script>") == text.count("\\<script>") > 0
        if form == "json":
            assert json.loads(text)["unreadable"][0]["file"] == evil


def test_the_page_has_chinese_titles():
    broken = (UnreadableFile("a.pkl", 3, "damaged", "copy it again"),)
    with speaking("zh"):
        page = renderer("fleet", "html")(report_of(8, unreadable=broken, notes=("one",)), Look(), 5)
    titles = re.findall(r"<h[23]>(.*?)</h[23]>|<th[^>]*>([^<]+)</th>", page)
    assert len(titles) > 8
    assert [each for each in titles if not re.search("[\u3400-\u9fff]|^rank$", "".join(each))] == []
