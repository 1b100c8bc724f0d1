"""Writes the diagnoses at the top of README.md anew, from what ``memdiag oom`` and ``memdiag analyze`` print now: ``make readme``.

The report of ``memdiag analyze`` is shown whole, that of ``memdiag oom`` up to the second remedy.
tests/test_readme.py compares both with the output.
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


def output(arguments: list[str]) -> str:
    """What memdiag prints, 80 columns wide and without colours."""
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "memdiag", *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, encoding="utf-8", check=True).stdout  # noqa: S603 - ourselves


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
    text = output(arguments)
    shown = oom_excerpt(text) if arguments[0] == "oom" else (line.rstrip() for line in text.splitlines())
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
