"""The chart of the whole card on the page: parts that sum to the card, for a file that has samples of it."""

from __future__ import annotations

import memdiag
from memdiag.render.analyze.html import OCCASIONS, render
from memdiag.trace import schema
from memdiag.views.picture import build_picture
from tests.analyzers.test_residue import turns

TIP = "#card-time-chart .tip"


def test_a_file_without_samples_has_no_chart(shown):
    shown.show("summary")
    assert shown.page.locator("#card-time").is_hidden()


def test_the_chart_shows_who_had_the_card(tab, tmp_path):
    trace = turns([411, 1160, 2500])
    path = tmp_path / "card.html"
    path.write_text(render(build_picture(trace, memdiag.analyze(trace))), encoding="utf-8")
    tab.open(path)
    tab.until("state().drawn.includes('summary')")
    (device,) = memdiag.analyze(trace).devices
    fullest = min(device.card_timeline, key=lambda moment: moment.free_bytes)
    chart = tab.page.locator("#card-time")
    assert chart.locator("h2").inner_text() == "Memory of the card over time"
    assert f"at least {gib(fullest.free_bytes)}" in chart.locator(".lead").inner_text()
    keys = chart.locator(".legend .key").all_inner_texts()
    assert f"reserved: {gib(fullest.reserved_bytes)}" in keys
    assert [key.split(":")[0] for key in keys[:3]] == ["other processes", "rest of process", "reserved"]
    assert not any("unknown" in key or "out of memory" in key for key in keys)
    tab.page.locator("#card-time-chart").hover(position={"x": 68, "y": 150})
    tab.page.locator(TIP).wait_for()
    (first, *_) = device.card_timeline
    shown = dict(line.split("\n") for line in tab.page.locator(f"{TIP} .tip-line").all_inner_texts())
    assert shown["free"] == gib(first.free_bytes)
    assert shown["reserved"] == gib(first.reserved_bytes)
    assert tab.wrong == []


def test_the_words_of_the_chart_follow_the_language(tab, tmp_path):
    trace = turns([411])
    path = tmp_path / "card.html"
    path.write_text(render(build_picture(trace, memdiag.analyze(trace)), "zh"), encoding="utf-8")
    tab.open(path)
    tab.until("state().drawn.includes('summary')")
    assert tab.page.locator("#card-time h2").inner_text() == "整张卡的内存随时间的变化"
    tab.page.locator("#lang").click()
    tab.until("state().drawn.includes('summary') && state().lang === 'en'")
    assert tab.page.locator("#card-time h2").inner_text() == "Memory of the card over time"
    assert tab.wrong == []


def test_every_occasion_of_a_sample_has_a_name():
    assert OCCASIONS == schema.OCCASIONS


def gib(size):
    return f"{size / (1 << 30):.2f} GiB"
