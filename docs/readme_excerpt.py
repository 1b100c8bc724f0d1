"""Updates the console examples in README.md and docs/oom.md with the current output of memdiag: ``make readme``.

A comment ``<!-- first 15 lines -->`` above an example shortens its output. tests/test_readme.py compares the examples
with the output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "README.zh.md", ROOT / "docs" / "oom.md")
BLOCK = re.compile(
    r"(?P<head>(?:<!-- first (?P<count>\d+) lines -->\n)?```console\n\$ memdiag )(?P<command>[^\n]*)\n.*?```", re.DOTALL
)


def output(arguments: list[str]) -> str:
    """Returns the output of memdiag, 80 columns wide and without colours."""
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "memdiag", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, encoding="utf-8", check=True).stdout  # noqa: S603 - ourselves


def fresh(match: re.Match[str]) -> str:
    """Returns an example with the current output of its command, shortened if a comment asks for it."""
    lines = [line.rstrip() for line in output(match["command"].split()).splitlines()]
    count = int(match["count"] or len(lines))
    if count < len(lines):
        lines = [*lines[:count], "…"]
    return "\n".join([match["head"] + match["command"], *lines, "```"])


def main() -> None:
    """Replaces the examples in every page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if not BLOCK.search(text):
            raise SystemExit(f"{page.name} has no console block that begins with: $ memdiag")
        page.write_text(BLOCK.sub(fresh, text), encoding="utf-8")


if __name__ == "__main__":
    main()
