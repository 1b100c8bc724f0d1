"""Searches a grid of a Megatron-core Llama with ``memdiag fit`` and exhaustively, and writes reports/fit.md.

    python bench/fit.py --python VENV/bin/python --work FOLDER [--world 32]

VENV has a CUDA build of torch and megatron-core. Measured are the number of runs, whether each outcome is that of the
exhaustive search, and whether the events of a run are those of ``memdiag record --phantom``. FOLDER keeps the runs, so
that an interrupted bench continues. The time of a search is reported only if it made all its runs itself. The
exhaustive search runs rank 0 of each configuration, which the report compares with the other probed ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memdiag.sources import load

HERE = Path(__file__).parent
REPORTS = HERE.parent / "reports"
PROGRAM = HERE / "programs" / "megatron_core.py"
GRID = ("tp=1,2,4,8", "pp=1,2,4", "mbs=1,2,4,8")
DEVICE = "cuda:h100-80g"
COLUMNS = ("action", "size", "addr", "stream")
DEFAULT = "default"
SEARCHES: dict[str, tuple[str, ...]] = {
    DEFAULT: (),
    "`--shrinks tp`": ("--shrinks", "tp"),
    "`--shrinks tp,pp`": ("--shrinks", "tp,pp"),
}
EXHAUSTIVE = ("--exhaustive", "--ranks", "0")
MACHINE = 8  # ranks of one machine
COMPARED = 3  # runs that are compared with memdiag record


def command(python: str) -> list[str]:
    """Returns the training command with its placeholders."""
    shape = ("--layers", "16", "--micro", "4", "--recompute", "none")
    return [python, str(PROGRAM), "--tp", "{tp}", "--pp", "{pp}", "--batch", "{mbs}", *shape]


def memdiag(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs memdiag."""
    return subprocess.run([sys.executable, "-m", "memdiag", *words], stdout=subprocess.PIPE, text=True, check=False)


@dataclass(frozen=True)
class Search:
    """A search: its report, its seconds, and the processor seconds of all its processes."""

    report: dict[str, Any]
    seconds: float
    processor_seconds: float


def search(folder: Path, python: str, world: str, *options: str) -> Search:
    """Runs a search."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    grid = [word for axis in GRID for word in ("--grid", axis)]
    words = ["--device", DEVICE, *grid, "--world", world, "-o", str(folder), "--json", *options]
    done = memdiag("fit", *words, "--", *command(python))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
    return Search(json.loads(done.stdout), time.monotonic() - began, used)


def outcomes(report: dict[str, Any]) -> dict[tuple[str, ...], bool | None]:
    """Returns whether each configuration fits; None: its command failed."""
    known = {"fits": True, "tight": True, "fails": False, "unknown": None}
    return {tuple(cell["values"]): known[cell["on"][0]["outcome"]] for cell in report["cells"]}


def is_same_as_alone(cell: dict[str, Any], folder: Path, python: str, world: str) -> bool:
    """Returns whether a run of the search has the events of ``memdiag record --phantom`` with the same values."""
    on = cell["on"][0]
    values = dict(zip(("tp", "pp", "mbs"), cell["values"], strict=True))
    words = [word.format(**values) if word.startswith("{") else word for word in command(python)]
    where = folder / "-".join(cell["values"])
    memdiag(
        *("record", "--phantom", f"{DEVICE},total=4096GiB", "--as-rank", str(on["rank"]), "--world", world),
        *("-q", "-o", str(where), "--", *words),
    )
    one, other = (load(path).devices[0].events for path in (Path(on["trace"]), where / "rank0.pkl"))
    return all(bool((getattr(one, name) == getattr(other, name)).all()) for name in COLUMNS)


def main() -> None:
    """Measures and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--world", default="32")
    given = parser.parse_args()
    work = given.work.resolve()
    every = search(work / "every", given.python, given.world, *EXHAUSTIVE)
    searches = {
        name: search(work / f"search-{at}", given.python, given.world, *options)
        for at, (name, options) in enumerate(SEARCHES.items())
    }
    first = searches[DEFAULT].report
    ran = [cell for cell in first["cells"] if cell["on"][0]["basis"] == "run"]
    heaviest = {max(cell["ranks"], key=lambda rank: rank["peak_reserved_bytes"])["rank"] for cell in ran}
    same = [is_same_as_alone(cell, work, given.python, given.world) for cell in ran[:: -(-len(ran) // COMPARED)]]
    again = search(work / "search-0", given.python, given.world)
    rows = {name: row(found, every) for name, found in {**searches, "exhaustive": every}.items()}
    facts = {
        "cells": len(first["cells"]),
        "fitting": sum(fits is True for fits in outcomes(every.report).values()),
        "peaks_below_capacity": num_below(every.report),
        "searches": rows,
        "bracketed": sum("," in (cell["on"][0]["decided_by"] or "") for cell in first["cells"]),
        "beyond_eight": sum(int(tp) * int(pp) > MACHINE for tp, pp, _ in outcomes(first)),
        "corners": corners(outcomes(every.report)),
        "heaviest_ranks": sorted(heaviest),
        "compared_with_record": len(same),
        "same_as_record": sum(same),
        "continued_is_same": again.report["cells"] == first["cells"],
        "processors": os.cpu_count(),
    }
    (REPORTS / "fit.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (REPORTS / "fit.md").write_text(page(facts, given.world), encoding="utf-8")


def num_below(report: dict[str, Any]) -> int:
    """Returns the number of configurations whose reserved peak alone is at most the memory that PyTorch can reserve."""
    usable = report["devices"][0]["usable_bytes"]
    peaks = [cell["on"][0]["peak_reserved_bytes"] for cell in report["cells"]]
    return sum(peak is not None and peak <= usable for peak in peaks)


def corners(true: dict[tuple[str, ...], bool | None]) -> int:
    """Returns the runs without which tp and the micro-batch do not decide the rest: the corners of the staircases."""

    def lighter(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        is_lighter = int(one[0]) >= int(other[0]) and int(one[2]) <= int(other[2])
        return one != other and one[1] == other[1] and is_lighter

    return sum(
        not any(lighter(*((cell, other) if fits else (other, cell))) for other, its in true.items() if its == fits)
        for cell, fits in true.items()
    )


def row(found: Search, every: Search) -> dict[str, Any]:
    """Returns the facts of a search."""
    report, true = found.report, outcomes(every.report)
    is_anew = not report["num_reused"]
    return {
        "runs": report["num_runs"],
        "seconds": round(found.seconds) if is_anew else None,
        "processor_seconds": round(found.processor_seconds) if is_anew else None,
        "differing": sorted(key for key, fits in outcomes(report).items() if true[key] != fits),
    }


def page(facts: dict[str, Any], world: str) -> str:
    """Returns the report."""
    grid = ", ".join(f"`{axis}`" for axis in GRID)
    alone = f"{facts['same_as_record']} of {facts['compared_with_record']}"
    lines = []
    for name, found in facts["searches"].items():
        times = [found["seconds"], found["processor_seconds"]]
        shown = ["-" if time is None else str(time) for time in times]
        share = f"{100 * found['runs'] / facts['cells']:.0f} %"
        lines.append(f"| {name} | {found['runs']} ({share}) | {len(found['differing'])} | {' | '.join(shown)} |")
    table = "\n".join(lines)
    ranks = ", ".join(map(str, facts["heaviest_ranks"]))
    return f"""# The search of `memdiag fit`

`python bench/fit.py --python VENV/bin/python --work FOLDER` reproduces this page. It searches the configurations of a
Megatron-core Llama (16 layers, hidden size 4096, 4 micro-batches of 4096 tokens in each step) on a simulated {DEVICE},
single ranks of a world of {world}: {facts["cells"]} configurations ({grid}), of which {facts["fitting"]} fit.
A configuration fits if the card holds its reserved peak, the CUDA context and the buffers of NCCL together. Without
NCCL's buffers, the card would hold {facts["peaks_below_capacity"]} of the reserved peaks.

| search | configurations run | outcomes other than exhaustively | seconds | processor seconds |
|---|---:|---:|---:|---:|
{table}

* The default search infers from the micro-batch (growing) and `tp` (shrinking). For each number of pipeline stages, the
  limit is a staircase, and each of its corners needs a run: with these orders alone, at least
  {facts["corners"]} configurations.
* The default search also infers `pp=2` from equal outcomes of `pp=1` and `pp=4`, after all three were run in two other
  places of the grid and agree on the direction. {facts["bracketed"]} outcomes were inferred so.
* With `--shrinks tp`, memdiag does not infer `pp=2` in this way.
* A world of {MACHINE} ranks (one machine) cannot hold this grid: `tp` times `pp` exceeds {MACHINE} in
  {facts["beyond_eight"]} of its configurations.
* `--shrinks tp,pp` declares that more pipeline stages need at most as much memory per rank as well. This is true here:
  the first stage of the 1F1B schedule keeps at most as many activations of layers as a single stage does.
* Seconds are given for searches that made all their runs in one call, on {facts["processors"]} processors.
* The exhaustive search runs rank 0 of each configuration. The heaviest of all probed ranks in every run of the default
  search: {ranks}.
* Runs with the same events as `memdiag record --phantom` (action, size, address, stream): {alone} that were compared.
* The same search again in the same directory gives the same table: {"yes" if facts["continued_is_same"] else "no"}.
"""


if __name__ == "__main__":
    main()
