"""Measures what recording costs programs of other people, in processor time, and writes reports/other-programs-cost.md.

    python bench/programs_cost.py --sources FOLDER --python VENV/bin/python [--turns 3]

Each of RUNS runs on the CPU bare and below ``memdiag record -q``, in turns, in a folder of its own. The
time is that of a processor, of all processes of the run: the program from its start to its end, with the import of
torch, the recorder, its files, and memdiag's own process.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from others_table import HERE, Program, read_table, unpack
from programs_of_others import run

STEM = HERE.parent / "reports" / "other-programs-cost"
RUNS = (  # of programs, with more arguments for longer runs
    ("makemore gru", ""),
    ("pytorch/examples mnist", ""),
    ("cleanrl dqn", ""),
    ("pytorch/examples gat on a made graph", ""),
    ("cleanrl dqn", "--total-timesteps 6000"),
    ("makemore gru", "--max-steps 60"),
    ("minGPT adder, gpt-nano", "--trainer.max_iters=300"),
)
SECONDS = 900  # limit of one run


def seconds_of(
    program: Program, given: argparse.Namespace, commits: dict[str, str], more: str, *, is_recorded: bool
) -> float:
    """Returns the processor seconds of one run with more arguments."""
    with tempfile.TemporaryDirectory(prefix="cost-") as scratch:
        ready = unpack(program, "cpu", given, commits, Path(scratch) / "source")
        record = [sys.executable, "-m", "memdiag", "record", "-q", "--backend", "cpu", "-o", f"{scratch}/run", "--"]
        command = [*(record if is_recorded else []), *ready.words, *more.split()]
        status, _, took, said = run(command, ready.folder, ready.environment, SECONDS)
        if status:
            raise SystemExit(f"{program.family} {program.name} ended with exit status {status}: {said[-500:]}")
        return took


def main() -> None:
    """Measures the programs in turns and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sources", type=Path, required=True, help="folder with the clones of the repositories")
    parser.add_argument("--python", required=True)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    commits, programs = read_table()
    known = {f"{one.family} {one.name}": one for one in programs}
    times: dict[str, dict[str, list[float]]] = {f"{name} {more}": {"bare": [], "recorded": []} for name, more in RUNS}
    for _ in range(given.turns):
        for name, more in RUNS:
            for kind in ("bare", "recorded"):
                took = seconds_of(known[name], given, commits, more, is_recorded=kind == "recorded")
                times[f"{name} {more}"][kind].append(took)
    write(times)


def write(times: dict[str, dict[str, list[float]]]) -> None:
    """Writes the report and the times."""
    rows = []
    for name, kinds in times.items():
        bare, recorded = (median(kinds[kind]) for kind in ("bare", "recorded"))
        shown = " | ".join(" ".join(f"{one:.2f}" for one in kinds[kind]) for kind in ("bare", "recorded"))
        rows.append(f"| {name.strip()} | {shown} | {recorded - bare:+.2f} s | {recorded / bare - 1:+.0%} |")
    head = STEM.with_suffix(".md").read_text(encoding="utf-8").partition("<!-- table -->")[0]
    table = [
        "| program | bare, s | recorded, s | difference of the medians | |",
        "|---|---|---|--:|--:|",
        *rows,
    ]
    STEM.with_suffix(".md").write_text(f"{head}<!-- table -->\n\n" + "\n".join(table) + "\n", encoding="utf-8")
    STEM.with_suffix(".json").write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
