"""Writes the screens shown in docs/view.md: run ``NO_COLOR=1 python -m tests.tui.page_screens``.

The comment above each block has the keys to press and the lines to show: ``<!-- screen: 4 s s; lines 15-21 -->``.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.tui.test_app import run, screen_text, viewer

PAGE = Path(__file__).parents[2] / "docs" / "view.md"
BLOCK = re.compile(
    r"(?P<head><!-- screen:(?P<keys>[ \w]*); lines (?P<first>\d+)-(?P<last>\d+) -->\n```text\n)(?P<shown>.*?)```",
    re.DOTALL,
)


def screen(keys: list[str]) -> list[str]:
    """Returns the lines of an 80 x 24 screen of the example trace, without colours, after these keys."""

    async def play(pilot):
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        return [line.rstrip() for line in screen_text(pilot.app)]

    return run(viewer(), play)


def fresh(match: re.Match[str]) -> str:
    """Returns a block of the page with the current screen."""
    lines = screen(match["keys"].split())[int(match["first"]) - 1 : int(match["last"])]
    return "\n".join([match["head"] + lines[0], *lines[1:], "```"])


def page() -> str:
    """Returns docs/view.md with current screens."""
    return BLOCK.sub(fresh, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
