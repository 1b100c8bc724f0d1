"""The page loads no other files, shows the values of the trace to the byte, and reacts to mouse and keys."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.render.analyze.html import render
from memdiag.trace.moments import peak_event
from memdiag.views.columns import pack
from memdiag.views.picture import build_picture

ROOT = Path(__file__).parents[4]
GOLDENS = ROOT / "tests" / "goldens"
SECTIONS = ["summary", "timeline", "bands", "map", "tree", "flame", "tensors", "findings", "policies", "settings"]
# The fractions of a canvas's pixels that have any colour, and that are nearly black.
LIGHTNESS = """(place) => {
    const canvas = document.querySelector(place);
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let [painted, dark] = [0, 0];
    for (let i = 0; i < data.length; i += 4) {
        painted += data[i + 3] > 0;
        dark += data[i + 3] > 200 && data[i] < 40 && data[i + 1] < 50 && data[i + 2] < 60;
    }
    return { painted: painted / (data.length / 4), dark: dark / (data.length / 4) };
}"""
HOSTILE = [
    "<script>window.hurt = 1</script>",
    '"><img src=x onerror="window.hurt = 1">',
    "</script><svg onload='window.hurt = 1'>",
    "javascript:window.hurt=1",
    "a\u202eb\u0000c\u001b[31m\u2066\u200f\u2028d",
    "{a|b} {b} {0} ${window.hurt = 1}",
    "__proto__",
    "constructor",
    "x" * 1_000_000,
    "'\"`&lt;&#60;",
    "",
]


def at_peak(trace):
    device = trace.devices[0]
    event = peak_event(device)
    return (
        device,
        event,
        {
            name: int(device.usage[name][event])
            for name in ("reserved", "allocated", "active", "cache", "stranded", "foreign")
        },
    )


def test_every_section_is_drawn_when_it_is_shown(shown, report):
    for section in SECTIONS:
        shown.show(section)
    assert shown.page.locator("h1").inner_text().startswith("Peak 2.27 GiB allocated in 2.97 GiB reserved")
    assert shown.page.locator("#findings-list article").count() == len(report.findings)
    assert shown.page.locator("#policies-table tbody tr").count() >= 4
    assert shown.page.locator("#headline .badge").inner_text() == "WARNING"


def test_the_page_begins_with_the_verdict_card(shown, report):
    shown.show("summary")
    card = shown.page.locator("#headline .verdict")
    for text in (report.verdict.loss, report.verdict.remedy, report.verdict.prediction, report.verdict.calibration):
        assert text in card.inner_text()
    assert card.locator("code").inner_text() == report.verdict.command
    assert report.verdict.remedy not in shown.page.locator("#todo").inner_text()  # the card already shows it


def test_another_remedy_leads_to_its_finding(shown):
    shown.show("summary")
    shown.page.locator("#todo a").first.click()
    shown.until("state().drawn.includes('findings') && scrollY > 0")
    number = shown.page.locator("#todo a").first.get_attribute("href")
    assert shown.page.locator(number).is_visible()
    assert shown.page.evaluate(f"document.querySelector('{number}').getBoundingClientRect().top") < 900


def test_a_finding_is_explained_inside_the_page(shown, report):
    """The page contains the documentation page of every finding that it shows."""
    shown.show("findings")
    explained = shown.page.locator("#findings-list details.explanation")
    assert explained.count() == len(report.findings)
    assert not explained.first.locator("h4").first.is_visible()
    explained.first.locator("summary").click()
    assert explained.first.locator("h4").first.inner_text() == "What it means"
    assert shown.requests[1:] == []


def test_a_click_on_the_peak_shows_a_map_that_adds_up(shown, trace):
    device, event, there = at_peak(trace)
    shown.show("timeline")
    shown.page.locator("#timeline-chart").press("End")
    shown.until("state().instant === state().num_instants - 1")
    shown.until("memdiag.instantPoint(state().peak_instant) !== null")
    shown.click_at("#timeline-chart", shown.page.evaluate("memdiag.instantPoint(memdiag.state().peak_instant)"))
    shown.until(f"state().event === {event}")
    shown.show("map")
    state = shown.state()
    sums = state["map"]["sums"]
    assert {name: sums[name] for name in there} == there
    assert sums["outside"] == 0
    assert {name: drawn for name, drawn, told in state["sums"] if drawn == told} == there
    tensors = device.tensors
    assert state["map"]["blocks"] == int(((tensors.alloc_at <= event) & (tensors.free_completed_at > event)).sum())
    assert shown.page.locator("#sums .sum.good").count() == 6
    shown.show("flame")  # sections are drawn when they come into view
    assert shown.state()["flame"]["total"] == there["active"]


def test_every_instant_adds_up(shown):
    wrong = shown.page.evaluate("""() => {
        const bad = [];
        const { n } = M.device().instants;
        for (let row = 0; row < n; row += Math.ceil(n / 60)) {
            M.chosen.row = row;
            for (const [name, drawn, told] of M.sums()) if (drawn !== told) bad.push([row, name, drawn, told]);
        }
        M.chosen.row = M.device().peak_instant;
        return bad;
    }""")
    assert wrong == []


def test_zoom(shown):
    page = shown.page
    page.locator("#timeline-chart").press("+")
    shown.until("state().timeline.zoom.end - state().timeline.zoom.start < 51")
    page.locator("#timeline-chart").press("Home")  # the visible range follows the selected instant
    shown.until("state().instant === 0 && state().timeline.zoom.start === 0 && state().timeline.zoom.end < 51")
    page.locator("#timeline-chart").press("0")
    shown.until("state().timeline.zoom.end - state().timeline.zoom.start > 99")
    shown.show("map")
    lines = shown.state()["map"]["lines"]
    for _ in range(3):
        page.locator("#map-canvas").press("+")
    shown.until(f"state().map.zoom === 8 && state().map.lines > {lines}")
    page.locator("#map-canvas").press("0")
    shown.until(f"state().map.zoom === 1 && state().map.lines === {lines}")
    shown.show("flame")
    page.locator("#flame-chart").press("ArrowDown")
    page.locator("#flame-chart").press("ArrowDown")
    page.locator("#flame-chart").press("Enter")
    shown.until("state().flame.zoomed")
    page.locator("#flame-chart").press("Backspace")
    page.locator("#flame-chart").press("Backspace")
    shown.until("!state().flame.zoomed")


def test_one_goes_into_the_treemap_and_out(shown):
    shown.show("tree")
    chip = shown.page.locator("#tree-path .chip").first
    name = chip.inner_text()
    chip.press("Enter")
    shown.until("state().tree.path.length === 1")
    state = shown.state()
    assert name.startswith(state["tree"]["path"][0])
    assert 0 < state["tree"]["value"] < state["flame"]["total"]
    shown.page.locator("#tree-path .link").first.press("Enter")
    shown.until("state().tree.path.length === 0")


def test_keys_walk_over_the_map_and_the_panel_tells_of_the_block(shown):
    shown.show("map")
    canvas = shown.page.locator("#map-canvas")
    canvas.press("Home")
    shown.until("state().map.chosen === 0")
    canvas.press("ArrowDown")
    shown.until("state().map.chosen > 0")
    canvas.press("ArrowUp")
    canvas.press("Home")
    canvas.press("ArrowRight")
    shown.until("state().map.chosen > 0")
    second = shown.state()["map"]["chosen"]
    canvas.press("Home")
    panel = shown.page.locator("#map-panel").inner_text()
    assert "frames, innermost first" in panel
    assert "train_gpt.py" in panel
    shown.click_at("#map-canvas", shown.page.evaluate(f"memdiag.mapPoint({second})"))
    shown.until(f"state().map.chosen === {second}")
    canvas.press("Escape")
    shown.until("state().map.chosen === -1")


def test_keys_for_instants_sections_and_help(shown):
    page = shown.page
    peak = shown.state()["instant"]
    page.keyboard.press("ArrowLeft")
    shown.until(f"state().instant === {peak - 1}")
    page.keyboard.press("Shift+ArrowLeft")
    shown.until(f"state().instant === {peak - 11}")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.keyboard.press("8")
    shown.until("state().drawn.includes('findings')")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_search_finds_tensors_frames_and_findings(shown):
    page = shown.page
    page.locator("#search").fill("attention")
    shown.until("state().found && state().found.here > 0")
    found = shown.state()["found"]
    assert 0 < found["here"] <= found["tensors"]
    assert found["frames"] > 0
    shown.show("tensors")
    rows = page.locator("#tensors-table tbody tr").all_inner_texts()
    assert len(rows) == min(found["here"], 15)
    page.locator("#search").fill("MD201")
    shown.until("state().found && state().found.findings >= 1 && state().query === 'md201'")
    shown.show("findings")
    shown.until(f"state().findings === {shown.state()['found']['findings']}")
    page.locator("#search").fill("nothing has this name")
    shown.until("document.getElementById('found').textContent === 'Nothing found'")
    page.locator("#search").press("Escape")
    shown.until("state().found === null && document.getElementById('found').hidden")


def test_both_languages(shown):
    page = shown.page
    page.locator("#lang").click()
    shown.until("state().lang === 'zh'")
    for section in SECTIONS:
        shown.show(section)
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert "预留 2.97 GiB" in page.locator("h1").inner_text()
    assert page.locator("#map-h").inner_text() == "地址图"
    text = page.locator("main").inner_text()
    assert not [
        word
        for word in text.split()
        if word.startswith(
            ("word.", "why.", "tile.", "panel.", "nav.", "at.", "flame.", "map.", "bands.", "log.", "action.")
        )
    ]
    page.locator("#lang").click()
    shown.until("state().lang === 'en'")
    assert page.locator("#map-h").inner_text() == "Address map"


def test_both_themes(shown):
    page = shown.page
    colour = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(colour)
    page.locator("#theme").click()
    shown.until("state().dark")
    assert page.evaluate(colour) != light
    page.locator("#theme").click()
    shown.until("!state().dark")
    assert page.evaluate(colour) == light


def test_on_paper_everything_is_drawn_in_light_colours(shown):
    page = shown.page
    page.locator("#theme").click()
    shown.until("state().dark")
    page.emulate_media(media="print")
    shown.until(f"!state().dark && {SECTIONS}.every((section) => state().drawn.includes(section))")
    assert not page.locator("#timeline-tools").is_visible()
    assert not page.locator("#log").is_visible()
    wide = page.evaluate("document.querySelector('main').clientWidth")
    for place in (
        "#timeline-chart canvas",
        "#bands-canvas",
        "#map-canvas",
        "#flame-chart canvas",
        "#tree-chart canvas",
    ):
        box = page.locator(place).first.bounding_box()
        assert 0.8 * wide < box["width"] <= wide, f"{place} is neither cut nor small"
        pixels = page.evaluate(LIGHTNESS, place)
        assert pixels["painted"] > 0.05, f"{place} was painted before the printer asked for it"
        assert pixels["dark"] < 0.1, f"{place} is drawn for white paper"
    page.emulate_media(media="screen")
    shown.until("state().dark")


def test_a_table_row_is_shown_on_the_map(shown):
    shown.show("tensors")
    shown.page.locator("#tensors-table tbody tr").first.press("Enter")
    shown.until("state().tensor >= 0 && state().map.chosen >= 0")
    assert shown.page.locator("#tensors-table tr.chosen").count() == 1


def page_of(picture, tab, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render(picture), encoding="utf-8")
    tab.open(path)
    for section in SECTIONS:
        tab.show(section)
    tab.until(f"{SECTIONS}.every((section) => state().drawn.includes(section))")
    assert tab.wrong == []
    assert len(tab.requests) == 1


def test_hostile_text_does_nothing(report, drawn, tab, tmp_path):
    text = "".join(HOSTILE[:7])
    source = replace(report.source, path=text)
    findings = tuple(replace(finding, title=text) for finding in report.findings)
    settings = {**report.settings, text: text}
    names = np.arange(drawn.devices[0]["tensors"]["n"]) % len(HOSTILE)
    tensors = {**drawn.devices[0]["tensors"], **{name: pack({"v": names})["v"] for name in ("name", "module")}}
    frames = (*HOSTILE, *(HOSTILE[i % 7] for i in range(len(drawn.frames))))[: len(drawn.frames)]
    device = {**drawn.devices[0], "tensors": tensors}
    said = replace(report, source=source, findings=findings, settings=settings)
    lists = {"frames": frames, "labels": frames, "strings": tuple(HOSTILE), "modules": tuple(HOSTILE)}
    page_of(replace(drawn, report=said, devices=(device,), **lists), tab, tmp_path)
    page = tab.page
    page.locator("#search").fill("<script>")
    tab.until("state().found && state().found.here > 0")
    page.locator("#map-canvas").press("Home")
    page.locator("#lang").click()
    tab.until("state().lang === 'zh'")
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img, main script, #headline svg").count() == 0
    shown = page.evaluate("document.body.innerText")
    assert "<script>window.hurt = 1</script>" in shown  # the page shows it as text
    assert len(shown) < 300_000
    assert not {"\u202e", "\u0000", "\u001b", "\u2066", "\u200f", "\u2028"} & set(
        page.evaluate("document.documentElement.outerHTML")
    )
    assert tab.wrong == []


def test_several_devices(tab, tmp_path):
    trace = memdiag.load(GOLDENS / "cuda-2.13.0-two-devices" / "snapshot.pickle")
    page_of(build_picture(trace, memdiag.analyze(trace, replay=False)), tab, tmp_path)
    assert tab.state()["device"] == 1, "the one that held most"
    tab.page.locator("#device").select_option("0")
    tab.until("state().device === 0")
    tab.show("map")
    assert all(drawn == told for _, drawn, told in tab.state()["sums"])
    assert tab.wrong == []


def test_lines_of_the_map_have_their_own_labels_however_far_apart_segments_lie(tab, tmp_path):
    events = []
    for segment in (0x302000000, 0x7F8EA4000000, 0x7F8EA5000000):
        call = {"addr": segment, "size": 2 << 20, "stream": 0, "frames": []}
        events += [{"action": "segment_alloc", **call}, {"action": "alloc", **call}]
    path = tmp_path / "far.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}, 4))
    trace = memdiag.load(path)
    page_of(build_picture(trace, memdiag.analyze(trace, replay=False)), tab, tmp_path)
    labels = tab.state()["map"]["labels"]
    begins = [at for at, label in enumerate(labels) if label.startswith("0x")]
    assert [labels[at] for at in begins] == ["0x302000000", "0x7f8ea4000000", "0x7f8ea5000000"]
    first = labels[: begins[1]]
    assert first[1:3] == ["+512 KiB", "+1 MiB"]
    assert len(set(first)) == len(first)
    tab.page.locator("#map-canvas").press("Home")
    assert "0x302000000" in tab.page.locator("#map-panel").inner_text()


@pytest.mark.parametrize("history", [False, True])
def test_traces_that_know_less(history, tab, tmp_path):
    if history:  # lifetimes only, without addresses, stacks and reserved bytes
        path = tmp_path / "lives.csv"
        path.write_text("id,lower,upper,size\na,0,3,4096\nb,3,9,4096\nc,0,9,2048\n")
    else:  # a state without a trace: one instant
        path = GOLDENS / "cuda-2.13.0-no-trace" / "snapshot.pickle"
    trace = memdiag.load(path)
    page_of(build_picture(trace, memdiag.analyze(trace, replay=False)), tab, tmp_path)
    state = tab.state()
    assert all(drawn == told for _, drawn, told in state["sums"])
    if history:
        assert not state["map"]["shown"]
        assert "no map" in tab.page.locator("#sums").inner_text()
    else:
        assert state["num_instants"] == 1
        assert "peak" not in tab.page.locator("#instant-bar").inner_text(), "nobody knows whether it is one"
        assert state["map"]["shown"]
        assert "no timeline" in tab.page.locator("#timeline-legend").inner_text()
    assert tab.wrong == []
