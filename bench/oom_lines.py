"""Counts the lines of ``memdiag oom`` reports on a corpus of real messages, and those before the first remedy.

    python bench/oom_lines.py [CORPUS.jsonl] [--before FOLDER] [--report reports/oom-lines.md]

Reports are rendered for a plain terminal of 80 columns. ``--before`` names a folder that contains another version of
the package, for example one unpacked with ``git archive``; the report then compares the two. It names messages, but
holds none of their text.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CORPUS = ROOT.parent / "shared" / "data" / "oom" / "corpus.jsonl"
REPORT = ROOT / "reports" / "oom-lines.md"
WIDTH = 80
LONGEST_LEAD, LONGEST_REPORT = 10, 25  # the goal: line of the first remedy, and lines of a typical report


class Lines(NamedTuple):
    """One report: its number of lines, and the line of its first remedy (0: it has none)."""

    name: str
    total: int
    first: int


def main() -> None:
    """Measures, prints the figures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, default=CORPUS, help="messages, one a line (JSON)")
    parser.add_argument("--before", type=Path, help="folder that contains another version of the package")
    parser.add_argument("--report", type=Path, default=REPORT, help="where to write it")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.corpus.exists():
        sys.exit(f"error: no corpus at {options.corpus}\nhint: name one")
    if options.measure:
        print(json.dumps(measured(options.corpus)))
        return
    found = {"now": of_package(ROOT, options.corpus)}
    if options.before:
        found = {"before": of_package(options.before, options.corpus), **found}
    text = report(found)
    options.report.write_text(text, encoding="utf-8")
    print(text)


def of_package(folder: Path, corpus: Path) -> list[Lines]:
    """Returns the lines of the reports that the package in ``folder`` makes, measured in a process of that package."""
    command = [sys.executable, str(Path(__file__).resolve()), str(corpus.resolve()), "--measure"]
    environment = {**os.environ, "PYTHONPATH": str(folder.resolve()), "MEMDIAG_LANG": "en"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [Lines(*row) for row in json.loads(done.stdout)]


def measured(corpus: Path) -> list[Lines]:
    """Returns the lines of the report of each message, made by the package that this process imports."""
    from memdiag.oom.read import read_text
    from memdiag.render.oom.terminal import render
    from memdiag.render.support.look import Look

    rows = []
    for row in map(json.loads, corpus.read_text(encoding="utf-8").splitlines()):
        found = read_text(row["text"])
        fixes = [
            fix
            for message in found.messages[:1]
            for finding in message.findings
            for fix in finding.fixes
            if fix.kind != "record"
        ]
        lines = render(found, Look(width=WIDTH)).splitlines()
        starts = [
            (text.splitlines() or [""])[0][:30] for text in ((fixes[0].title, fixes[0].change) if fixes else ()) if text
        ]
        first = next((number for number, line in enumerate(lines, 1) if any(start in line for start in starts)), 0)
        rows.append(Lines(row["id"], len(lines), first))
    return rows


def report(found: dict[str, list[Lines]]) -> str:
    """Returns the report as markdown."""
    lines = [
        "# Length of `memdiag oom` reports",
        "",
        (
            f"bench/oom_lines.py rendered the report of every message of a corpus for a terminal of {WIDTH} columns. "
            "The goal is a first"
        ),
        f"remedy within the first {LONGEST_LEAD} lines and a typical report of at most {LONGEST_REPORT} lines.",
        "",
        (
            f"| | reports | first remedy: median | worst | after line {LONGEST_LEAD} | lines: median | worst | over "
            f"{LONGEST_REPORT} lines |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, rows in found.items():
        firsts, totals = [row.first for row in rows if row.first], [row.total for row in rows]
        late, long = sum(first > LONGEST_LEAD for first in firsts), sum(total > LONGEST_REPORT for total in totals)
        cells = (
            len(rows),
            f"{statistics.median(firsts):g}",
            max(firsts),
            late,
            f"{statistics.median(totals):g}",
            max(totals),
            long,
        )
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    now = found["now"]
    lines += ["", "## The longest reports now", "", "| message | lines | first remedy |", "|---|---:|---:|"]
    lines += [
        f"| {row.name} | {row.total} | {row.first or 'none'} |" for row in sorted(now, key=lambda row: -row.total)[:10]
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
