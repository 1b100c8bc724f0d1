"""Writes the current output of memdiag into the console examples of README and docs: ``make readme``.

An example is a ``console`` block that begins with ``$ memdiag``. The blocks of a page run in order in one temporary
folder, which has ``examples/`` and ``tests/`` of the repository, so that a block can use the files of an earlier one.
A comment ``<!-- first 15 lines -->`` or ``<!-- lines 1-6, 20-31 -->`` above a block shortens its output. A block below
``<!-- recorded -->`` runs a program, often on a simulated device, and has chosen lines; it is left as it is.
tests/test_outputs.py compares all of them with the output, and tests/test_blocks.py has the rules for other blocks.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
OMITTED = "…"
MEMDIAG = [sys.executable, "-m", "memdiag"]
_COMPILING = re.compile(r"^compiling the code .*\n", re.MULTILINE)  # printed once per installation
_TUTORIAL = ROOT / "docs" / "tutorial.md"  # chooses its lines: tests/test_tutorial.py compares them
BLOCK = re.compile(
    r"(?P<head>(?:<!-- (?:(?P<recorded>recorded)|first (?P<count>\d+) lines|lines (?P<ranges>[\d, -]+)) -->\n)?"
    r"```console\n\$ memdiag )(?P<command>[^\n]*)\n(?P<shown>.*?)```",
    re.DOTALL,
)
PAGES = tuple(
    path
    for path in (ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path != _TUTORIAL and BLOCK.search(path.read_text(encoding="utf-8"))
)


def output(command: str, folder: Path) -> str:
    """Returns what memdiag prints in this folder, messages included, 80 columns wide and without colours."""
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "MEMDIAG_LANG": "en"}
    env.pop("GITHUB_ACTIONS", None)  # memdiag check annotates pull requests there
    done = subprocess.run(  # noqa: S603 - ourselves
        [*MEMDIAG, *shlex.split(command)],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    if done.returncode not in {0, 1}:  # 1: a condition matched
        raise SystemExit(f"memdiag {command} failed:\n{done.stdout}")
    return _COMPILING.sub("", done.stdout)


def _chosen(match: re.Match[str], count: int) -> Iterator[tuple[int, int]]:
    """Yields the parts of the output that a block shows, as ranges from 0."""
    if match["ranges"]:
        for each in match["ranges"].split(","):
            first, _, last = each.strip().partition("-")
            yield int(first) - 1, min(int(last or first), count)
    else:
        yield 0, min(int(match["count"] or count), count)


def fresh(match: re.Match[str], folder: Path) -> str:
    """Returns an example with the current output of its command, shortened if a comment asks for it."""
    if match["recorded"]:
        return match[0]
    printed = [line.rstrip() for line in output(match["command"], folder).rstrip().splitlines()]
    lines, end = [], 0
    for first, last in _chosen(match, len(printed)):
        part = "\n".join(printed[first:last]).strip("\n").split("\n")
        lines += [*([OMITTED] if first > end else []), *part]
        end = last
    if end < len(printed):
        lines.append(OMITTED)
    return "\n".join([match["head"] + match["command"], *lines, "```"])


def page(path: Path) -> str:
    """Returns the text of a page with current examples."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("examples", "tests"):
            (folder / each).symlink_to(ROOT / each)
        return BLOCK.sub(lambda match: fresh(match, folder), path.read_text(encoding="utf-8"))


def main(names: list[str]) -> None:
    """Replaces the examples in the given pages, or in all."""
    for path in [Path(name).resolve() for name in names] or PAGES:
        path.write_text(page(path), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
