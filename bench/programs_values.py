"""Measures ``memdiag record --values auto`` on programs of other people, and writes reports/other-programs-values.md.

    python bench/programs_values.py --sources FOLDER --python VENV/bin/python [--only "cleanrl;TRL"]

It records each program of programs_of_others.toml whose row has an option, without that option: memdiag has to find it.
FOLDER and VENV are those of programs_of_others.py. A row is kept once it was measured; ``--again`` measures anew.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from others_table import HERE, Program, read_table, unpack
from programs_of_others import run

STEM = HERE.parent / "reports" / "other-programs-values"
FOUND = re.compile(r"the program runs with (.+): use these options")
AGAIN = re.compile(
    r"(?:after it read|it read|after memdiag assumed) ([\d,]+) (values?|sizes?) .*?the last one at (.+?)"
    r"(?:, where it read (.+?))?; memdiag runs the command again with (.+)"
)


@dataclass
class Search:
    """What came of one program.

    Attributes:
        program: Family and name.
        works: Whether the last run succeeded.
        found: Options that memdiag names at the end; "" if the first run succeeded, or none did.
        options: Options of the row in the table.
        failures: Of each failure: count, what ("values" or "sizes"), place, value, and the next options.
        seconds: Time by the clock of all runs.
        cpu_seconds: Processor time of all runs.
    """

    program: str
    works: bool
    found: str
    options: str
    failures: list[tuple[str, ...]] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def search(program: Program, given: argparse.Namespace, commits: Mapping[str, str]) -> Search:
    """Records one program with ``--values auto``."""
    with tempfile.TemporaryDirectory(prefix="values-") as scratch:
        ready = unpack(program, given.device.partition(":")[0], given, commits, Path(scratch) / "source")
        own = ["-q", "--phantom", given.device, "--values", "auto", "-o", f"{scratch}/run", "--"]
        command = [sys.executable, "-m", "memdiag", "record", *own, *ready.words]
        status, wall, used, said = run(command, ready.folder, ready.environment, given.seconds)
        # a place in the program, or in this repository
        said = said.replace(f"{ready.folder}/", "").replace(f"{Path(scratch)}/source/", "").replace(f"{HERE}/", "")
    if status and given.verbose:
        print(said[-3000:], file=sys.stderr)
    found = FOUND.search(said)
    failures = [tuple(each or "" for each in one) for one in AGAIN.findall(said)]
    name = f"{program.family} {program.name}"
    named = found[1] if found else ""
    return Search(name, not status, named, " ".join(program.options), failures, wall, used)


def line_of(row: Search) -> str:
    """One row of the table."""
    parts = []
    for count, what, place, value, _ in row.failures:
        as_what = f" as {value}" if value else ""
        parts.append(f"{count} {what}, last at {place}{as_what}")
    ran = f"`{row.found}`" if row.found else "no option" if row.works else "no setting"
    took = f"{row.seconds:.0f} s | {row.cpu_seconds:.0f} s"
    return f"| {row.program} | {len(row.failures) + 1} | {ran} | {'; '.join(dict.fromkeys(parts))} | {took} |"


def write(rows: Mapping[str, Search], programs: list[Program]) -> None:
    """Writes the report, in the order of the table, and the rows."""
    head = STEM.with_suffix(".md").read_text(encoding="utf-8").partition("<!-- table -->")[0]
    kept = [rows[name] for one in programs if (name := f"{one.family} {one.name}") in rows]
    table = [
        "| program | runs | runs with | what the failures named | time | of a processor |",
        "|---|--:|---|---|--:|--:|",
        *map(line_of, kept),
    ]
    STEM.with_suffix(".md").write_text(f"{head}<!-- table -->\n\n" + "\n".join(table) + "\n", encoding="utf-8")
    STEM.with_suffix(".json").write_text(json.dumps([asdict(row) for row in kept], indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Measures the rows that are missing and writes the report after each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=Path, required=True, help="folder with the clones of the repositories")
    parser.add_argument("--python", required=True)
    parser.add_argument("--device", default="cuda:h100-80g")
    parser.add_argument("--only", default="", help="programs whose family or name holds one of these, by ;")
    parser.add_argument("--again", action="store_true", help="also programs that have a row")
    parser.add_argument("--seconds", type=int, default=1800, help="limit of all runs of one program")
    parser.add_argument("--verbose", action="store_true", help="print the end of what a failed program printed")
    given = parser.parse_args()
    commits, programs = read_table()
    file = STEM.with_suffix(".json")
    rows = {row["program"]: Search(**row) for row in (json.loads(file.read_text("utf-8")) if file.exists() else [])}
    for program in programs:
        name = f"{program.family} {program.name}"
        is_chosen = any(part in name for part in given.only.split(";"))
        if program.options and is_chosen and (given.again or name not in rows):
            rows[name] = search(program, given, commits)
            print(line_of(rows[name]), flush=True)
            write(rows, programs)


if __name__ == "__main__":
    main()
