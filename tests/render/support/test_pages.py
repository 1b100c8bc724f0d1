"""Pages of compare and fleet are self-contained, show the numbers of the other forms, and escape text of traces."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import memdiag
from memdiag.compare.report import compare
from memdiag.compare.side import ComparedTrace, choose_device
from memdiag.fleet.rollup import bins_of
from memdiag.render.compare import html as compare_html
from memdiag.render.compare import rows as compare_rows
from memdiag.render.fleet import html as fleet_html
from memdiag.render.fleet.words import heat_values
from memdiag.render.support.pages import Markup, tag, together
from memdiag.render.support.pages.plots import PlotLine, curves
from memdiag.results.fleet import FleetReport, HeatMap, Merged, Rank, UnreadableFile

GB = 1 << 30
EVIL = "</style><script>alert(1)</script><img src=x onerror=alert(2)>\"'\x1b[31m\u202e"


class Checked(HTMLParser):
    """Parses a page and checks that its elements close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.links, self.text = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.links += [value for name, value in attrs if name in {"src", "href", "action", "data"}]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def compared(goldens, *names):
    traces = [memdiag.load(goldens / name / "snapshot.pickle") for name in names]
    chosen = [
        ComparedTrace(letter, trace, choose_device(trace, None), {})
        for letter, trace in zip("ABC", traces, strict=False)
    ]
    return compare(chosen, at="peak", top=5)


@pytest.fixture(scope="module")
def comparison(goldens):
    return compared(goldens, "cuda-2.13.0-recorded", "npu-2.13.0-recorded", "cuda-2.13.0-train")


def fleet_of(count, steps=4, **other):
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
            is_out_of_memory=rank == 3,
            last_failure=None,
            num_retries=0,
            step=1,
            phase="forward",
            unused_bytes=GB,
            num_events=10,
            conf=None,
            torch_version="2.13.0",
            headline="",
            by_category={"parameter": 4 * GB, "activation": 5 * GB},
        )
        for rank in range(count)
    )
    heat = HeatMap(
        "reserved",
        "step",
        tuple(map(str, range(steps))),
        tuple(range(count)),
        tuple(tuple((10 + rank % 7) * GB + step for step in range(steps)) for rank in range(count)),
    )
    finding = Merged(
        "MD201", "warning", other.pop("title", "a title"), "train.py:3", tuple(range(count)), 0, GB, 2 * GB
    )
    return FleetReport(
        ("All is told.",),
        ranks,
        (),
        (),
        bins_of({row.rank: row.peak_bytes for row in ranks}),
        (finding,),
        heat,
        other.pop("broken", ()),
        other.pop("notes", ()),
        **other,
    )


def test_text_becomes_markup_in_one_place_only():
    assert tag("p", EVIL, title=EVIL).count("<") == 2
    assert "\x1b" not in tag("p", EVIL)
    assert "onerror=alert(2)&gt;" in tag("p", EVIL)
    assert together(["<b>", Markup("<i></i>")]) == "&lt;b&gt;<i></i>"
    assert tag("text", "a", class_="x", stroke_width=2, data=None) == '<text class="x" stroke-width="2">a</text>'


def test_a_page_asks_for_nothing_and_runs_nothing(comparison):
    for text in (compare_html.render(comparison), fleet_html.render(fleet_of(9))):
        page = Checked(text)
        assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in html.unescape(text)
        assert not {"script", "link", "img", "iframe", "object"} & set(page.seen)
        assert all(link.startswith("#") for link in page.links)
        anchors = set(re.findall(r'<section[^>]* id="([^"]*)"', text))
        assert {link[1:] for link in page.links} <= anchors


def test_a_comparison_has_the_numbers_of_the_other_forms(comparison):
    text = compare_html.render(comparison)
    words = " ".join(Checked(text).text)
    for sentence in comparison.verdicts:
        assert sentence in words
    told = [*compare_rows.usage_rows(comparison), *compare_rows.count_rows(comparison)]
    for cell in [cell for _, cells in told for cell in cells]:
        assert cell in words
    assert text.count("<polyline") == sum(
        len([values for values in which if max(values) >= 0])
        for which in (comparison.curves.reserved, comparison.curves.allocated)
    )
    assert f"{len(comparison.sites) - 5} more" in words


def test_the_split_is_drawn_to_one_scale(comparison):
    bars = re.findall(r'<div class="stack">(.*?)</div>', compare_html.render(comparison))
    wide = [sum(float(part) for part in re.findall(r"width:([\d.]+)%", bar)) for bar in bars]
    reserved = [side.usage.reserved_bytes for side in comparison.sides]
    assert wide == pytest.approx([100 * size / max(reserved) for size in reserved], abs=0.05)


def test_the_same_trace_twice_has_no_lists(goldens):
    text = compare_html.render(compared(goldens, "cuda-2.13.0-train", "cuda-2.13.0-train"))
    assert 'id="places"' not in text
    Checked(text)


def test_a_file_without_history_or_addresses(goldens):
    for names in (("cuda-2.13.0-no-trace", "cuda-2.13.0-state-only"), ("cpu-2.13.0-recorded", "cuda-2.13.0-oom")):
        assert "nan" not in "".join(Checked(compare_html.render(compared(goldens, *names))).text)


def test_curves_are_where_their_values_are():
    drawn = curves([PlotLine("one", "#000000", "", (0, 1 << 30, -1, 1 << 29))], [(0.0, "begin")])
    runs = [points.split() for points in re.findall(r' points="([^"]*)"', drawn)]
    assert [len(run) for run in runs] == [2, 1]
    top, bottom = (float(runs[0][place].split(",")[1]) for place in (1, 0))
    middle = float(runs[1][0].split(",")[1])
    assert middle == pytest.approx((top + bottom) / 2, abs=0.2)
    assert curves([PlotLine("none", "#000000", "", (-1, -1))], []) == ""


def test_a_heat_map_has_a_field_for_every_rank_and_step():
    report = fleet_of(9)
    text = fleet_html.render(report)
    assert text.count("<rect") == 9 * 4
    assert "rank 3, step 2: 13.00 GiB" in text
    drawn = heat_values(report, report.heatmap, 3, 2)
    assert ([row.name for row in drawn.rows], drawn.columns) == (["0-2", "3-5", "6-8"], ["0 to 1", "2 to 3"])
    assert drawn.rows[0].values == [12 * GB + 1, 12 * GB + 3]
    assert drawn.rows[1].said == "3 ran out"


def test_many_ranks_make_no_huge_page():
    text = fleet_html.render(fleet_of(3000, steps=500), top=8)
    assert len(text) < 8_000_000
    assert text.count("<rect") == 256 * 96
    assert "1,000 more (--json)" in text


def test_text_of_a_file_stays_text(comparison):
    side = replace(comparison.sides[0], path=EVIL)
    hostile = replace(comparison, sides=(side, *comparison.sides[1:]), verdicts=(EVIL,), notes=(EVIL,), shared_end=EVIL)
    fleet = fleet_of(3, title=EVIL, broken=(UnreadableFile(EVIL, None, EVIL, EVIL),), notes=(EVIL,))
    for text in (compare_html.render(hostile), fleet_html.render(fleet)):
        page = Checked(text)
        assert not {"script", "img"} & set(page.seen)
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_browser_shows_it_in_light_and_dark(comparison, chromium, tmp_path):
    for name, text in (("compare", compare_html.render(comparison)), ("fleet", fleet_html.render(fleet_of(9)))):
        path = tmp_path / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        grounds = set()
        for scheme in ("light", "dark"):
            context = chromium.new_context(viewport={"width": 1300, "height": 900}, color_scheme=scheme)
            page, wrong, asked = context.new_page(), [], []
            page.on("console", lambda said, wrong=wrong: wrong.append(said.text))
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(path.as_uri())
            assert (wrong, asked) == ([], [path.as_uri()])
            assert page.evaluate("document.documentElement.scrollWidth") <= 1300
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            drawn = page.evaluate(
                "[...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect().height)"
            )
            assert min(drawn) > 50
            page.set_viewport_size({"width": 420, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= 420
            context.close()
        assert len(grounds) == 2
