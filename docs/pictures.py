"""Writes the pictures of README and docs: ``make pictures``, or ``python docs/pictures.py NAME…`` for some of them.

Figures are drawn by matplotlib, and the pages and the terminal viewer by the system's Chromium (playwright, extra
``dev``). They show examples/gpt-train.pickle, tests/goldens, and the worked example of docs/fragmentation.md, so that
anyone can draw them again. docs/images/fleet-heatmap.png is not among them: it shows 66 ranks of a recording that is
not part of the repository. The picture of a whole card needs MEMDIAG_TEST_CUDA_PYTHON, a Python with a CUDA build of
torch; without one it stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

from memdiag import vocabulary
from memdiag.analyzers.support.moments import fragmentation_at, reference_at
from memdiag.sources import load
from memdiag.trace.free_split import split_at
from tests.pythons import cuda_python

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
GPT = Path("examples", "gpt-train.pickle")
COLOCATED = Path("bench", "programs", "colocated.py")
GOLDENS = Path("tests", "goldens")  # pages show these names; the commands run in ROOT
MIB = 1 << 20
LARGE_PAGE = 20 * MIB
_NARROW = 3  # MiB: a box without room for its label


def memdiag(*arguments: str | Path) -> None:
    """Runs memdiag, in English."""
    command = [sys.executable, "-m", "memdiag", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MEMDIAG_LANG": "en"}
    subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - ourselves


# --------------------------------------------------------------------------------------------------- figures of a trace


def plots(_: Path) -> None:
    """Draws one figure of each kind of ``memdiag plot``."""
    for kind in ("timeline", "lifetimes", "fragmentation", "map", "policies"):
        memdiag("plot", GPT, "--kind", kind, "--dpi", "110", "-o", IMAGES / f"plot-{kind}.png")


def card(folder: Path) -> None:
    """Draws the memory of a simulated card that a trainer shares with an inference engine."""
    python, run = cuda_python(), folder / "run"
    if not python:
        return
    with contextlib.suppress(subprocess.CalledProcessError):  # the trainer runs out of memory
        memdiag("record", "-q", "--phantom", "cuda:h100-80g", "-o", run, "--", python, COLOCATED, "cuda")
    trainer = next(path for path in sorted(run.glob("rank*.pkl")) if "trained" in load(path).recorded.names)
    memdiag("plot", trainer, "--kind", "card", "--dpi", "110", "-o", IMAGES / "plot-card.png")


# -------------------------------------------------------------------------- the worked example of docs/fragmentation.md


def example() -> tuple[Any, int]:
    """Returns the device of the worked example, and the event just before the request X."""
    helpers = runpy.run_path(str(ROOT / "tests" / "analyzers" / "conftest.py"))
    trace, before = helpers["example"].__wrapped__(helpers["Heap"]())
    return trace.devices[0], before


def _box(axes: Any, left: float, width: float, y: float, text: str, kind: str, key: str) -> None:
    style = vocabulary.STYLES[kind].get(key)
    colour = vocabulary.color(kind, key)
    hatch = "" if style is None else style.hatch
    axes.barh(y, width, left=left, height=0.62, color=colour, alpha=0.85, edgecolor="white", hatch=hatch, linewidth=1)
    if text:
        narrow = width < _NARROW
        axes.text(
            left + width + 0.4 if narrow else left + width / 2,
            y,
            text,
            ha="left" if narrow else "center",
            va="center",
            fontsize=8.5,
            bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1},
        )


@contextlib.contextmanager
def _figure(name: str, width: float, height: float) -> Iterator[Any]:
    with mpl.rc_context({"font.family": "DejaVu Sans", "svg.hashsalt": "memdiag", "hatch.color": "white"}):
        figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
        yield axes
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        figure.savefig(IMAGES / name, dpi=120, metadata={"Software": None})
        plt.close(figure)


def segments(_: Path) -> None:
    """Draws the four segments of the worked example, with the cause of each free range."""
    device, before = example()
    topology = device.topology(before)
    groups = topology.segments["group"]
    _, request, group = reference_at(device, before)
    labels = {
        40: "S1  large pool, default stream",
        16: "S2  large pool, default stream",
        2: "S3  small pool, default stream",
        20: "S4  large pool, stream 7",
    }
    with _figure("fragmentation-segments.png", 8.4, 3.3) as axes:
        names = []
        for row, (start, size) in enumerate(zip(topology.segments["start"], topology.segments["size"], strict=True)):
            names.append(f"{labels[size // MIB]}\n{size // MIB} MiB")
            blocks = topology.blocks
            own = [at for at in range(len(blocks["segment"])) if blocks["segment"][at] == row]
            for at in own:
                left, width = (blocks["address"][at] - start) / MIB, blocks["size"][at] / MIB
                if blocks["tensor"][at] >= 0:
                    pending = row == 3 and width == 6
                    text = "pending 6" if pending else f"live {width:.0f}" if width > 1 else ""
                    _box(axes, left, width, row, text, "part", "pending" if pending else "requested")
                    continue
                free = (
                    "cache"
                    if len(own) == 1
                    else "foreign"
                    if groups[row] != group
                    else "stranded"
                    if blocks["size"][at] < request
                    else "cache"
                )
                _box(axes, left, width, row, f"{free} {width:.0f}", "part", free)
        _box(axes, 0, request / MIB, 4, f"request X: {request // MIB} MiB", "phase", "unknown")
        axes.set_yticks(range(5), [*names, "does not fit\nin any free range"], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("MiB, to scale")


def requests(_: Path) -> None:
    """Draws the split of the same free memory for requests of different sizes."""
    device, before = example()
    here = fragmentation_at(device, before)
    _, _, group = reference_at(device, before)
    with _figure("fragmentation-requests.png", 8.4, 2.2) as axes:
        sizes = (8, 16, 32)
        for row, size in enumerate(sizes):
            split = split_at(device, before, size * MIB, group, LARGE_PAGE)
            left = 0.0
            for part, amount in (("stranded", split.stranded), ("foreign", split.foreign), ("cache", split.cache)):
                if amount:
                    _box(axes, left, amount / MIB, row, f"{part} {amount / MIB:.0f}", "part", part)
                left += amount / MIB
            if size * MIB == here.reference_request_bytes:
                assert (split.stranded, split.foreign, split.cache) == (  # noqa: S101 - the page quotes these
                    here.stranded_bytes,
                    here.foreign_bytes,
                    here.cache_bytes,
                )
        axes.set_yticks(range(len(sizes)), [f"for a request of {size} MiB" for size in sizes], fontsize=8.5)
        axes.invert_yaxis()
        axes.set_xlabel("free memory in MiB")


# ------------------------------------------------------------------------------------------------- pages and the viewer


@contextlib.contextmanager
def _browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    found = next((at for name in ("chromium", "chromium-browser", "google-chrome") if (at := shutil.which(name))), None)
    if found is None:
        raise SystemExit("error: no Chromium on the PATH")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


def _shot(page: Any, name: str, selector: str = "") -> None:
    """Photographs a page, or the part with this selector, in 128 colours: a third of the bytes, and no visible loss."""
    from PIL import Image

    if selector:
        page.locator(selector).scroll_into_view_if_needed()
    page.wait_for_timeout(2000)  # charts are animated
    file = IMAGES / name
    (page.locator(selector) if selector else page).screenshot(path=file)
    with Image.open(file) as picture:
        reduced = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    reduced.save(file, optimize=True)


def report(folder: Path) -> None:
    """Photographs the HTML report: its top, the bands, the map, and the Chinese page in dark colours."""
    file = folder / "report.html"
    memdiag("analyze", GPT, "--html", file)
    with _browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1484}, color_scheme="light", locale="en-US")
        page.goto(file.as_uri())
        _shot(page, "report.png")
        page.set_viewport_size({"width": 1320, "height": 880})
        _shot(page, "report-summary.png")
        for section in ("bands", "map", "tree", "flame", "policies"):
            _shot(page, f"report-{section}.png", f"#{section}")
        dark = browser.new_page(viewport={"width": 1320, "height": 880}, color_scheme="dark", locale="zh-CN")
        memdiag("--lang", "zh", "analyze", GPT, "--html", file)
        dark.goto(file.as_uri())
        _shot(dark, "report-zh-dark.png")


def pages(folder: Path) -> None:
    """Photographs the pages of ``memdiag compare`` and ``memdiag fleet``."""
    traces = [GOLDENS / name / "snapshot.pickle" for name in ("cuda-2.13.0-train", "cuda-2.15.0-train")]
    memdiag("compare", *traces, "--html", folder / "compare.html")
    ranks = ("cuda-2.11.0-train", "cuda-2.14.1-train", "cuda-2.15.0-train", "cuda-2.15.0-oom")
    memdiag("fleet", *(GOLDENS / name for name in ranks), "--html", folder / "fleet.html")
    with _browser() as browser:
        page = browser.new_page(viewport={"width": 1100, "height": 800}, color_scheme="light", locale="en-US")
        for name in ("compare", "fleet"):
            page.goto((folder / f"{name}.html").as_uri())
            _shot(page, f"{name}-page.png")


def view(folder: Path) -> None:
    """Photographs the terminal viewer."""
    from memdiag.analyzers.report import build_report
    from memdiag.tui.app import Viewer

    async def drawing() -> str:
        app = Viewer(GPT.name, lambda: load(ROOT / GPT), build_report, delay=0)
        async with app.run_test(size=(120, 40)) as pilot:
            await asyncio.to_thread(app.work.join)
            await pilot.pause(3)
            return app.export_screenshot(title=f"memdiag view {GPT.name}")

    file = folder / "view.svg"
    file.write_text(asyncio.run(drawing()), encoding="utf-8")
    with _browser() as browser:
        page = browser.new_page(viewport={"width": 1385, "height": 880})
        page.goto(file.as_uri())
        _shot(page, "view.png")


PICTURES: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (plots, card, segments, requests, report, pages, view)
}


def main(names: list[str]) -> None:
    """Draws the named pictures, or all."""
    with tempfile.TemporaryDirectory() as name:
        for each in names or PICTURES:
            PICTURES[each](Path(name))


if __name__ == "__main__":
    main(sys.argv[1:])
