"""A browser (the system's Chromium, driven by Playwright), and pages of traces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import memdiag
from memdiag.render.analyze.html import render
from memdiag.runs.simulated_runs import runs_of_report
from memdiag.views.picture import build_picture
from memdiag.views.policies import simulated_curves

EXAMPLE = Path(__file__).parents[4] / "examples" / "gpt-train.pickle"
PATIENCE = 90_000  # ms to wait for a state; long, so that no test fails on a busy machine


@dataclass
class Shown:
    """A page in the browser, and the errors on it."""

    page: Any
    wrong: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: Path) -> Shown:
        self.requests.clear()
        self.page.goto(path.as_uri())
        self.until("state().ready")
        return self

    def state(self) -> dict[str, Any]:
        return self.page.evaluate("memdiag.state()")

    def until(self, condition: str) -> None:
        """Waits until an expression is true; ``state()`` is the state of the page."""
        # Polled from here, because Playwright's waiting inside a page evaluates text, which the page's policy forbids.
        asked = (
            f"(() => {{ if (!window.memdiag) return false; const state = memdiag.state; return Boolean({condition}); "
            "})()"
        )
        give_up = time.monotonic() + PATIENCE / 1000
        while not self.page.evaluate(asked):
            assert time.monotonic() < give_up, (
                f"never: {condition}; wrong: {self.wrong}; {self.page.evaluate('window.memdiag && memdiag.state()')}"
            )
            self.page.wait_for_timeout(30)

    def show(self, section: str, drawn: str | None = None) -> None:
        """Scrolls to a section, and waits until it is drawn."""
        self.page.locator(f'#sections a[href="#{section}"]').click()
        self.until(f"state().drawn.includes({drawn or section!r})")

    def click_at(self, place: str, point: dict[str, float]) -> None:
        self.page.locator(place).click(position=point, timeout=PATIENCE)


@pytest.fixture(scope="module")
def tab(chromium: Any) -> Iterator[Shown]:
    context = chromium.new_context(viewport={"width": 1300, "height": 900}, color_scheme="light")
    context.set_default_timeout(PATIENCE)
    shown = Shown(context.new_page())
    shown.page.on("request", lambda request: shown.requests.append(request.url))
    shown.page.on("pageerror", lambda error: shown.wrong.append(str(error)))
    shown.page.on("console", lambda said: shown.wrong.append(said.text) if said.type in {"error", "warning"} else None)
    shown.page.add_init_script(
        "document.addEventListener('securitypolicyviolation', (event) => console.error('policy: ' + event.blockedURI));"
    )
    yield shown
    context.close()


@pytest.fixture(scope="module")
def trace():
    return memdiag.load(EXAMPLE)


@pytest.fixture(scope="module")
def report(trace):
    return memdiag.analyze(trace)


@pytest.fixture(scope="module")
def drawn(trace, report):
    return build_picture(trace, report, simulated=simulated_curves(runs_of_report(trace, report)))


@pytest.fixture(scope="module")
def opened(drawn, tab, tmp_path_factory):
    """The page of the example trace, loaded once per module."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(drawn), encoding="utf-8")
    tab.open(path)
    assert tab.requests == [path.as_uri()]
    return tab


@pytest.fixture
def shown(opened):
    """The page in its initial state; after the test, checks that it had no errors."""
    opened.page.keyboard.press("Escape")
    if opened.state()["lang"] != "en":
        opened.page.locator("#lang").click()
    if opened.state()["dark"]:
        opened.page.locator("#theme").click()
    opened.page.evaluate("document.activeElement.blur()")
    opened.page.keyboard.press("p")
    opened.until("state().instant === state().peak_instant && !state().query")
    yield opened
    assert opened.wrong == []
    assert len(opened.requests) == 1
