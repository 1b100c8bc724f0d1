"""Runs PyTorch's viewer, MemoryViz.js, on snapshots and counts the elements that it draws.

README.md has the origin of the files.
"""

from __future__ import annotations

import base64
import itertools
import os
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SITE = "https://memory-viz.test"
PAGE = """<!DOCTYPE html><html><head><script src="d3.min.js"></script></head><body><script type="module">
import {add_local_files} from "./MemoryViz.js";
window.open_snapshot = add_local_files;
</script></body></html>"""
# The viewer's imports of d3 from the web, one per line, and their local replacements.
IMPORT_ALL = re.compile(r'^import \* as (\w+) from "https://[^"]*";$', re.MULTILINE)
IMPORT_SOME = re.compile(r'^import (\{[^}]*\}) from "https://[^"]*";$', re.MULTILINE)
TIMELINE, HISTORY, SEGMENTS = "Active Memory Timeline", "Allocator State History", "Active Cached Segment Timeline"
MOST_DRAWN = 15_000  # elements of a timeline; the others are drawn as one
_PATIENCE = 90_000  # ms
_SHOWN = (
    "[...document.querySelectorAll('body > div')].find(div => div.style.display !== 'none' && div.childElementCount)"
)
_TEXT = (
    "[...shown.querySelectorAll('pre')].find(pre => !pre.closest('div[style*=monospace]'))?.textContent ?? "
    "shown.textContent"
)
_DRAWN = f"""(() => {{
    const shown = {_SHOWN};
    const svg = shown.querySelector('svg');
    const events = shown.querySelector('div[style*=monospace]');
    return {{
        polygons: svg ? svg.querySelectorAll('polygon').length : 0,
        rects: svg ? svg.querySelectorAll('rect').length : 0,
        events: events ? [...events.children].map(pre => pre.textContent) : [],
        text: {_TEXT},
    }};
}})()"""
_GO_TO = f"""(number => {{
    const shown = {_SHOWN};
    shown.querySelector('div[style*=monospace]').children[number].dispatchEvent(new MouseEvent('mousedown', \
{{bubbles: true}}));
    return {_TEXT};
}})"""


@dataclass(frozen=True)
class Drawn:
    """One device in one view of the viewer.

    Attributes:
        polygons: Number of bands in the main plot: tensors, or segments, and one for those too small to be drawn.
        events: Text of each entry of the list of events.
        rects: Number of rectangles in the picture of segments and blocks.
        text: Text below the picture.
    """

    polygons: int
    events: list[str]
    rects: int
    text: str


class MemoryViz:
    """The viewer in a browser.

    Attributes:
        wrong: Errors on the page, and addresses that it could not load.
    """

    def __init__(self, browser: Any) -> None:
        self.wrong: list[str] = []
        self._context = browser.new_context(viewport={"width": 1300, "height": 900})
        self._context.set_default_timeout(_PATIENCE)
        self.page = self._context.new_page()
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.route("**/*", self._serve)

    def close(self) -> None:
        """Closes the page."""
        self._context.close()

    def _serve(self, route: Any) -> None:
        name = route.request.url.removeprefix(SITE).lstrip("/")
        viewer = Path(os.environ.get("MEMDIAG_TEST_MEMORY_VIZ", HERE / "MemoryViz.js"))
        if name == "":
            route.fulfill(body=PAGE, content_type="text/html")
        elif name == "d3.min.js":
            route.fulfill(body=(HERE / name).read_text(), content_type="text/javascript")
        elif re.fullmatch(r"\w+\.js", name) and (viewer.parent / name).exists():
            text = (viewer.parent / name).read_text()
            text = IMPORT_SOME.sub(r"const \1 = window.d3;", IMPORT_ALL.sub(r"const \1 = window.d3;", text))
            route.fulfill(body=text, content_type="text/javascript")
        else:
            if name != "favicon.ico":
                self.wrong.append(f"asked for {route.request.url}")
            route.abort()

    def open(self, path: Path) -> None:
        """Opens a snapshot, in the view that shows tensors over time."""
        self.wrong.clear()
        self.page.goto(SITE + "/")
        self.page.wait_for_function("Boolean(window.open_snapshot)")
        file = {"name": path.name, "base64": base64.b64encode(path.read_bytes()).decode()}
        self.page.evaluate("([file, view]) => open_snapshot([file], view)", [file, TIMELINE])

    def views(self) -> list[str]:
        """Returns the names of the views."""
        return self._options(1)

    def devices(self) -> list[int]:
        """Returns the devices that the viewer has found in the file."""
        return [int(text) for text in self._options(2)]

    def _options(self, place: int) -> list[str]:
        return self.page.locator("body > select").nth(place).locator("option").all_inner_texts()

    def show(self, view: str, device: int) -> Drawn:
        """Opens a view of a device; returns the drawn elements."""
        selects = self.page.locator("body > select")
        selects.nth(1).select_option(view)
        selects.nth(2).select_option(str(device))
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return Drawn(**self.page.evaluate(_DRAWN))

    def go_to_event(self, number: int) -> str:
        """Selects an event, so that the viewer draws the state after it; returns the text below the picture."""
        return self.page.evaluate(_GO_TO, number)


@dataclass(frozen=True)
class Expected:
    """The elements that the viewer should draw for one device, counted in the file.

    Attributes:
        tensors: Number of lifetimes of blocks, including blocks that occur only in the segments.
        segments: Number of lifetimes of segments.
        events: Number of entries; a free and its immediate completion count as one.
        rects: Number of segments, plus two rectangles for each block that is not free: requested bytes and rounding.
    """

    tensors: int
    segments: int
    events: int
    rects: int


def expected(path: Path) -> dict[int, Expected]:
    """Returns the expected elements of each device that has entries or segments."""
    content = pickle.loads(path.read_bytes())
    found = {}
    for device, trace in enumerate(content["device_traces"]):
        segments = [segment for segment in content["segments"] if segment["device"] == device]
        if trace or segments:
            blocks = [block for segment in segments for block in _blocks(segment)]
            live = [address for address, state in blocks if state != "inactive"]
            here = [address for address, state in blocks if state == "active_allocated"]
            tensors = _lifetimes(trace, "alloc", "free_completed", here)
            opened = _lifetimes(trace, "segment_alloc", "segment_free", [segment["address"] for segment in segments])
            found[device] = Expected(
                tensors, opened, len(trace) - _completed_at_once(trace), len(segments) + 2 * len(live)
            )
    return found


def _blocks(segment: dict[str, Any]) -> list[tuple[int, str]]:
    address, found = segment["address"], []
    for block in segment["blocks"]:
        found.append((address, block["state"]))
        address += block["size"]
    return found


def _lifetimes(trace: list[dict[str, Any]], begins: str, ends: str, still_there: list[int]) -> int:
    number, open_at = 0, set()
    for entry in trace:
        if entry["action"] == begins:
            number += 1
            open_at.add(entry["addr"])
        elif entry["action"] == ends:
            number += entry["addr"] not in open_at  # it began before the first entry
            open_at.discard(entry["addr"])
    return number + sum(address not in open_at for address in still_there)


def _completed_at_once(trace: list[dict[str, Any]]) -> int:
    pairs = itertools.pairwise(trace)
    return sum(
        (one["action"], two["action"]) == ("free_requested", "free_completed") and one["addr"] == two["addr"]
        for one, two in pairs
    )


def check(viewer: MemoryViz, path: Path) -> dict[int, Expected]:
    """Opens a file, goes through all views of all its devices, and compares the drawn elements with the file.

    Returns:
        Expected and drawn elements of each device.
    """
    viewer.open(path)
    assert viewer.wrong == []
    wanted = expected(path)
    assert viewer.devices() == list(wanted)
    for device, due in wanted.items():
        for view in viewer.views():
            drawn = viewer.show(view, device)
            assert viewer.wrong == [], view
            if view == TIMELINE:
                assert drawn.polygons == min(due.tensors, MOST_DRAWN) + 1
            elif view == SEGMENTS:
                assert drawn.polygons == min(due.segments, MOST_DRAWN) + 1
            elif view == HISTORY:
                assert (len(drawn.events), drawn.rects) == (due.events, due.rects)
                for number in range(0, due.events, max(due.events // 20, 1)):
                    text = viewer.go_to_event(number)
                    assert viewer.wrong == [], (number, drawn.events[number])
                    assert drawn.events[number] in text
            else:
                assert drawn.text or drawn.polygons, view
    return wanted
