"""docs/view.md shows the current screens."""

from __future__ import annotations

from tests.tui import page_screens


def test_the_screens_in_the_page_are_current(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = page_screens.PAGE.read_text(encoding="utf-8")
    assert len(page_screens.BLOCK.findall(text)) == 3
    assert page_screens.page() == text, "write them again: NO_COLOR=1 python -m tests.tui.page_screens"
