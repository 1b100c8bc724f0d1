"""The address map shows the request to scale, the largest free range, power-of-two lines and meaningful colours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memdiag
from memdiag.render.analyze.html import render
from memdiag.trace import schema
from memdiag.views.picture import build_picture

GOLDENS = Path(__file__).parents[3] / "goldens"


def opened(trace, tab, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render(build_picture(trace, memdiag.analyze(trace, replay=False))), encoding="utf-8")
    tab.open(path)
    tab.show("map")
    return tab


def largest_hole(device, at, group):
    """Returns the longest run of free blocks in one segment of a group."""
    topology = device.topology(at)
    mine = np.flatnonzero(topology.segments["group"] == group)
    blocks, best = topology.blocks, 0
    for segment in mine.tolist():
        run = 0
        for row in np.flatnonzero(blocks["segment"] == segment).tolist():
            run = run + int(blocks["size"][row]) if blocks["tensor"][row] < 0 else 0
            best = max(best, run)
    return best


@pytest.mark.parametrize("name", ["cuda-2.13.0-oom", "npu-2.13.0-oom"])
def test_a_failed_request_stands_to_scale_above_the_map(name, tab, tmp_path):
    trace = memdiag.load(GOLDENS / name / "snapshot.pickle")
    device = trace.devices[0]
    at = int(np.flatnonzero(device.events.action == schema.OOM)[0])
    shown = opened(trace, tab, tmp_path)
    shown.page.evaluate("M.choose(M.device().ooms[0].instant)")
    shown.until(f"state().event === {at} && state().map.request.failed")
    state = shown.state()["map"]
    assert state["request"]["bytes"] == int(device.events.size[at])
    assert state["hole"] == largest_hole(device, at, state["request"]["group"])
    lines = shown.page.evaluate(
        "M.mapLines(M.layout(), [], 500, memdiag.state().map.perLine, memdiag.state().map.request.bytes)"
    )
    bar = sum(line.get("request", 0) for line in lines["lines"])
    piece = lines["pieces"][0]
    assert bar / state["request"]["bytes"] == pytest.approx(piece["width"] / (piece["to"] - piece["from"]), rel=0.01), (
        "one scale for both"
    )
    assert "largest free block for the request" in shown.page.locator("#map-legend").inner_text()
    assert shown.wrong == []


def test_a_line_holds_a_power_of_two(shown):
    shown.show("map")
    whole = shown.state()["map"]["perLine"]
    assert whole & (whole - 1) == 0
    shown.page.locator("#map-canvas").press("+")
    shown.until(f"state().map.perLine === {whole // 2}")
    assert (
        f"one line shows {memdiag.units.format_bytes(whole // 2).replace('.00', '')}"
        in shown.page.locator("#map-per-line").inner_text()
    )
    shown.page.locator("#map-canvas").press("0")
    shown.until(f"state().map.perLine === {whole}")


@pytest.mark.parametrize(
    ("lifetime", "category", "expected"), [(1, 1, "lifetimes"), (0, 1, "categories"), (0, 0, "sites")]
)
def test_the_map_opens_with_the_colours_that_are_known(lifetime, category, expected, tab, tmp_path):
    trace = memdiag.load(Path(__file__).parents[4] / "examples" / "gpt-train.pickle")
    picture = build_picture(trace, memdiag.analyze(trace, replay=False))
    tensors = picture.devices[0]["tensors"]
    for name, known in (("lifetime", lifetime), ("category", category)):
        if not known:
            tensors = {**tensors, name: {"t": "i32", "d": False, "s": 1, "v": [0] * tensors["n"]}}
    path = tmp_path / "page.html"
    path.write_text(render(replace(picture, devices=({**picture.devices[0], "tensors": tensors},))), encoding="utf-8")
    tab.open(path)
    tab.show("map")
    assert tab.state()["map"]["colour"] == expected
    assert tab.wrong == []
