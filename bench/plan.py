"""Measures ``memdiag plan`` on public benchmarks and traces: heights, seconds, and the heights of simpler methods.

    python bench/plan.py [--folder ../shared/data/other] [--traces FILE …] [--seconds 60] [-o reports/bench-plan]

The folder holds ``*.CAPACITY.csv`` (to be fitted into that capacity) and other lists of ``id,lower,upper,size`` (to be
placed as low as can be). Every plan goes through the command as a user runs it; its offsets are then checked once more,
from the file that it wrote.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Machine, markdown_table, write_report

from memdiag.allocator.placement.validator import problems
from memdiag.sources import lifespans_csv
from memdiag.sources.files import read_head

ROOT = Path(__file__).parents[1]
CAPACITY = re.compile(r"\.(\d+)\.csv$")


def planned(path: Path, seconds: float, capacity: int | None, seed: int) -> dict[str, Any]:
    """Runs the command once, checks the offsets that it wrote, and returns its JSON output."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "offsets.csv"
        options = ["--capacity", str(capacity)] if capacity else []
        command = [
            sys.executable,
            "-m",
            "memdiag",
            "plan",
            str(path),
            "--json",
            "--seconds",
            str(seconds),
            "--seed",
            str(seed),
        ]
        begun = time.monotonic()
        done = subprocess.run(
            [*command, "-o", str(target), *options], cwd=ROOT, capture_output=True, text=True, check=False
        )
        wall = time.monotonic() - begun
        if done.returncode not in {0, 1}:
            raise SystemExit(done.stderr)
        lower, upper, size, offsets = np.loadtxt(
            target, np.int64, delimiter=",", skiprows=1, usecols=(1, 2, 3, 4), unpack=True, ndmin=2
        )
    shown: dict[str, Any] = json.loads(done.stdout)
    wrong = problems(offsets, size, lower, upper, align=shown["alignment_bytes"], height=shown["height_bytes"])
    if wrong:
        raise SystemExit(f"{path}: {wrong[0]}")
    return {**shown, "name": name_of(path), "wall_seconds": round(wall, 2)}


def name_of(path: Path) -> str:
    """A short name: without the owner and the folders that are part of collected file names."""
    return path.parent.name if path.name == "snapshot.pickle" else path.name.rpartition("__")[2] or path.name


def lists_in(folder: Path) -> list[Path]:
    """The lists of lifetimes in a folder, those with a capacity in their name first."""
    found = [path for path in sorted(folder.glob("*.csv")) if lifespans_csv.sniff(read_head(path))]
    return sorted(found, key=lambda path: CAPACITY.search(path.name) is None)


def table(results: list[dict[str, Any]]) -> str:
    """The results as a markdown table."""
    rows = []
    for result in results:
        load = max(result["live_peak_bytes"], 1)
        rivals = [f"{value / load:.4f}" if value else "-" for value in result["height_bytes_by_method"].values()]
        recorded = result["recorded_peak_reserved_bytes"]
        fits = {True: "yes", False: "no", None: ""}[result["fits"]]
        held = f"{recorded / load:.4f}" if recorded else ""
        times = [f"{result['seconds']:.1f}", f"{result['wall_seconds']:.1f}"]
        size = [result["name"], f"{result['num_buffers']:,}", f"{load:,}"]
        rows.append([*size, f"{result['ratio']:.5f}", fits, result["stop_reason"], *rivals, held, *times])
    head = [
        "",
        "buffers",
        "load",
        "plan",
        "fits",
        "ended",
        "first fit by size",
        "first fit",
        "best fit",
        "recorded",
        "s",
        "wall s",
    ]
    return markdown_table(head, rows)


def main() -> None:
    """Runs everything and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT.parent / "shared" / "data" / "other")
    parser.add_argument("--traces", type=Path, nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "reports" / "bench-plan")
    options = parser.parse_args()
    machine = Machine.here()
    results: dict[str, list[dict[str, Any]]] = {"lists": [], "traces": []}
    for kind, paths in (("lists", lists_in(options.folder)), ("traces", options.traces)):
        for path in paths:
            capacity = CAPACITY.search(path.name)
            result = planned(
                path, options.seconds, int(capacity.group(1)) if kind == "lists" and capacity else None, options.seed
            )
            results[kind].append(result)
            print(
                f"{result['name']}: {result['ratio']:.5f} x load, {result['ended']}, {result['seconds']} s", flush=True
            )
    write(options, results, machine)


def write(options: argparse.Namespace, results: dict[str, list[dict[str, Any]]], machine: Machine) -> None:
    """Writes the report as markdown, and the numbers as JSON."""
    made = (
        f"Made by bench/plan.py: at most {options.seconds:g} s each, seed {options.seed}. Heights are multiples of the "
        "load, the most bytes live at one moment; no placement can need less. Every plan was checked again from the "
        "file that was written."
    )
    lines = [
        "# memdiag plan, measured",
        "",
        made,
        "",
        (
            "Lists of lifetimes (minimalloc's challenging ones are to be fitted into the capacity in their name; "
            "alignment 1):"
        ),
        "",
        table(results["lists"]),
    ]
    if results["traces"]:
        traces = results["traces"]
        worst = max(result["ratio"] for result in traces)
        lines += [
            "",
            f"Traces (alignment 512): {len(traces)}, the highest plan is {worst:.5f} x load.",
            "",
            table(traces),
        ]
    lines += ["", machine.sentence(), ""]
    kept = {
        kind: [{k: v for k, v in r.items() if k not in {"source", "output"}} for r in found]
        for kind, found in results.items()
    }
    write_report(options.output, "\n".join(lines), {**kept})


if __name__ == "__main__":
    main()
