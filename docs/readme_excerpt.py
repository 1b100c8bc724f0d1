"""Writes the diagnoses at the top of README.md anew, from what ``memdiag oom`` and ``memdiag analyze`` print now: ``make readme``.

Only the most telling paragraphs are shown, with "…" for what is left out; tests/test_readme.py compares them with the output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(```console\n\$ memdiag )([^\n]*\n)(.*?\n)(```)", re.DOTALL)
# Paragraphs to show, by how their first line begins, and how many lines of each.
PARAGRAPHS = {"Memory over the trace": 99, "Where the reserved bytes are": 99, "Who holds memory": 99, "bytes  tensors": 6, "Findings": 99}


def output(arguments: list[str]) -> str:
    """What memdiag prints, 80 columns wide and without colours."""
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "memdiag", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, encoding="utf-8", check=True).stdout  # noqa: S603 - ourselves


def excerpt(text: str) -> Iterator[str]:
    """The headline, the chosen paragraphs, and the first finding up to its first fix."""
    paragraphs = [[line.rstrip() for line in part.split("\n") if line.strip()] for part in text.split("\n\n") if part.strip()]
    yield from paragraphs[0]
    for paragraph in paragraphs[1:]:
        most = next((lines for start, lines in PARAGRAPHS.items() if paragraph[0].lstrip().startswith(start)), 0)
        if most:
            yield from ["", *paragraph[:most], *(["…"] if len(paragraph) > most else [])]
    finding = next(part for part in paragraphs if re.match(r"\s+MD\d\d\d ", part[0]))
    fixes = [row for row, line in enumerate(finding) if line.split()[0] == "fix"]
    yield from ["", *finding[: fixes[1] if len(fixes) > 1 else None], "…"]


def oom_excerpt(text: str) -> Iterator[str]:
    """Everything up to the second remedy of the first finding."""
    for line in text.splitlines():
        if re.match(r"\s+2\.  ", line):
            break
        yield line
    yield "…"


def fresh(match: re.Match[str]) -> str:
    """A block with what its command prints now."""
    arguments = match[2].split()
    shown = (oom_excerpt if arguments[0] == "oom" else excerpt)(output(arguments))
    return match[1] + match[2] + "\n".join(shown) + "\n" + match[4]


def main() -> None:
    """Replaces the blocks in README.md."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if not BLOCK.search(text):
        raise SystemExit("README.md has no console block that begins with: $ memdiag")
    readme.write_text(BLOCK.sub(fresh, text), encoding="utf-8")


if __name__ == "__main__":
    main()
