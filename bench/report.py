"""Times the HTML report of a large trace: building it, compared with ``memdiag analyze``, and opening it in a browser.

    python bench/report.py TRACE

TRACE: any large one. The committed report used a recording on a phantom H100 of examples/train_gpt.py with 24 layers,
width 1024, 16 heads, batch 4 and 200 steps (1,549,721 events, 170 MB). The browser is the system's Chromium, without a
window, driven by playwright. The page's memory is the proportional set size (PSS) of all browser processes with the
page fully drawn, minus that of the browser with an empty page.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import Contender, Machine, markdown_table, measure, write_report
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
MB = 1_000_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Of the target: bytes of the file, megabytes of the browser.
MOST_BYTES, MOST_BROWSER_MB = 5 * MB, 500
WAIT = 120  # seconds for the page to be there, on any machine


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--memdiag", type=Path, default=Path(sys.executable).with_name("memdiag"))
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "reports" / "bench-report")
    options = parser.parse_args()
    machine = Machine.here()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        page = scratch / "report.html"
        plain = [str(options.memdiag), "analyze", str(options.trace), "-o", str(scratch / "report.json")]
        built = [Contender("analyze", plain), Contender("analyze --html", [*plain, "--html", str(page)])]
        measure(built, options.runs, scratch)
        browser = opened(page)
    write(options, machine, built, browser)


def opened(path: Path) -> dict[str, Any]:
    """Opens the page and scrolls through it; returns times and memory."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SystemExit("error: no Chromium was found\nhint: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto("about:blank")
        empty = memory_of(program)
        begin = time.perf_counter()
        page.goto(path.as_uri())
        # Asked from here again and again: what waits inside of the page is made from text, which the page's policy
        # forbids.
        while not page.evaluate("Boolean(window.memdiag && window.memdiag.state().drawn.includes('timeline'))"):
            if time.perf_counter() - begin > WAIT:
                raise SystemExit("error: the page was never ready")
            page.wait_for_timeout(10)
        answered(page, "ArrowLeft")  # the frame in which the timeline appears
        ready = time.perf_counter() - begin
        clicks = [answered(page, "ArrowLeft") for _ in range(10)]
        for step in range(40):  # some parts are drawn when they become visible
            page.evaluate(f"window.scrollTo(0, {step} * 400)")
            page.wait_for_timeout(50)
        full = memory_of(program)
        shown = page.evaluate("window.memdiag.state().num_instants")
        browser.close()
    return {
        "bytes": path.stat().st_size,
        "ready_s": round(ready, 2),
        "instants": shown,
        "browser_mb": round((full - empty) / MB),
        "step_ms": round(sorted(clicks)[len(clicks) // 2], 1),
        "slowest_step_ms": round(max(clicks), 1),
    }


def answered(page: Page, key: str) -> float:
    """Returns the milliseconds from a key that selects another moment to the frame that shows it everywhere."""
    script = """key => new Promise(done => {
        const begin = performance.now();
        document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));
    })"""
    return float(page.evaluate(script, key))


def memory_of(program: str) -> int:
    """Returns the bytes that all processes of the browser take, memory that they share divided among them."""
    name = Path(program).name
    total = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if name in (process / "cmdline").read_bytes().partition(b"\0")[0].decode():
                    lines = (process / "smaps_rollup").read_text().splitlines()
                    total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
            except OSError:  # it ended meanwhile
                continue
    return total


def write(options: argparse.Namespace, machine: Machine, built: list[Contender], browser: dict[str, Any]) -> None:
    """Writes the report as markdown, and the numbers as JSON."""
    alone, with_page = built
    rows = [[each.name, f"{each.best:.2f}", f"{each.best_cpu:.2f}", f"{each.peak_bytes / MB:,.0f}"] for each in built]
    rows.append(
        [
            "ratio",
            f"{with_page.best / alone.best:.2f}",
            f"{with_page.best_cpu / alone.best_cpu:.2f}",
            f"{with_page.peak_bytes / alone.peak_bytes:.2f}",
        ]
    )
    page = [
        ["size of the file", f"{browser['bytes'] / MB:.1f} MB", f"at most {MOST_BYTES / MB:.0f} MB"],
        [
            "from opening it until its timeline is drawn and has answered a key",
            f"{browser['ready_s']:.2f} s",
            "seconds",
        ],
        [
            "another instant, with the whole page redrawn (median of 10)",
            f"{browser['step_ms']:.0f} ms",
            "no visible wait",
        ],
        ["the slowest of those", f"{browser['slowest_step_ms']:.0f} ms", ""],
        ["memory of the browser for the page", f"{browser['browser_mb']:,} MB", f"at most {MOST_BROWSER_MB} MB"],
        ["instants that can be looked at", f"{browser['instants']:,}", ""],
    ]
    lines = [
        "# The HTML report, measured",
        "",
        (
            f"Made by bench/report.py, from a trace of {options.trace.stat().st_size / MB:.0f} MB; best of "
            f"{options.runs} runs, in turns."
        ),
        "",
        markdown_table(["building it", "wall, s", "processor, s", "peak memory, MB"], rows),
        markdown_table(["opening it", "measured", "target"], page),
        machine.sentence(),
        "",
    ]
    write_report(options.output, "\n".join(lines), {"built": [each.as_dict() for each in built], "page": browser})


if __name__ == "__main__":
    main()
