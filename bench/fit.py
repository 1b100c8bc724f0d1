"""Searches a grid of a Megatron-core Llama with ``memdiag fit`` and exhaustively, and writes reports/fit.md.

    python bench/fit.py --python VENV/bin/python [--world 32]

VENV has a CUDA build of torch and megatron-core. Measured are the time and the number of runs, whether each
outcome is that of the exhaustive search, and whether the events of a run are those of ``memdiag record --phantom``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from memdiag.sources import load

HERE = Path(__file__).parent
REPORTS = HERE.parent / "reports"
PROGRAM = HERE / "programs" / "megatron_core.py"
GRID = ("tp=1,2,4,8", "pp=1,2,4", "mbs=1,2,4,8")
DEVICE = "cuda:h100-80g"
COLUMNS = ("action", "size", "addr", "stream")
COMPARED = 3  # runs that are compared with memdiag record


def command(python: str) -> list[str]:
    """Returns the training command with its placeholders."""
    shape = ("--layers", "16", "--micro", "4", "--recompute", "none")
    return [python, str(PROGRAM), "--tp", "{tp}", "--pp", "{pp}", "--batch", "{mbs}", *shape]


def memdiag(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs memdiag."""
    return subprocess.run([sys.executable, "-m", "memdiag", *words], stdout=subprocess.PIPE, text=True, check=False)


def search(folder: Path, python: str, world: str, *options: str) -> tuple[dict[str, Any], float, float]:
    """Runs a search; returns its report, its seconds, and the processor seconds of all its processes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    grid = [word for axis in GRID for word in ("--grid", axis)]
    done = memdiag(
        "fit",
        "--device",
        DEVICE,
        *grid,
        "--world",
        world,
        "-o",
        str(folder),
        "--json",
        *options,
        "--",
        *command(python),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
    return json.loads(done.stdout), time.monotonic() - began, used


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
    parser.add_argument("--world", default="32")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memdiag-fit-") as made:
        folder = Path(made)
        report, seconds, used = search(folder / "search", given.python, given.world)
        every, every_seconds, every_used = search(folder / "every", given.python, given.world, "--exhaustive")
        ran = [cell for cell in report["cells"] if cell["on"][0]["basis"] == "run"]
        same = [is_same_as_alone(cell, folder, given.python, given.world) for cell in ran[:: -(-len(ran) // COMPARED)]]
        again, again_seconds, _ = search(folder / "search", given.python, given.world)
    differing = {key for key, fits in outcomes(report).items() if outcomes(every)[key] != fits}
    facts = {
        "cells": len(report["cells"]),
        "runs": report["num_runs"],
        "seconds": round(seconds),
        "processor_seconds": round(used),
        "exhaustive_runs": every["num_runs"],
        "exhaustive_seconds": round(every_seconds),
        "exhaustive_processor_seconds": round(every_used),
        "differing": sorted(differing),
        "compared_with_record": len(same),
        "same_as_record": sum(same),
        "continued_seconds": round(again_seconds),
        "continued_is_same": again["cells"] == report["cells"],
        "processors": os.cpu_count(),
        "fitting": sum(fits is True for fits in outcomes(report).values()),
    }
    (REPORTS / "fit.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    (REPORTS / "fit.md").write_text(page(facts, given.world), encoding="utf-8")


def page(facts: dict[str, Any], world: str) -> str:
    """Returns the report."""
    share = 100 * facts["runs"] / facts["cells"]
    grid = ", ".join(f"`{axis}`" for axis in GRID)
    alone = f"{facts['same_as_record']} of {facts['compared_with_record']}"
    exhaustive = [facts[f"exhaustive_{name}"] for name in ("runs", "seconds", "processor_seconds")]
    return f"""# The search of `memdiag fit`

`python bench/fit.py --python VENV/bin/python` makes this page again. It searches the configurations of a Megatron-core
Llama (16 layers, hidden size 4096, 4 micro-batches of 4096 tokens in each step) on a simulated {DEVICE}, one rank at a
time of a world of {world}: {facts["cells"]} configurations ({grid}), of which {facts["fitting"]} fit.

| | search | exhaustive | continued |
|---|---:|---:|---:|
| configurations that were run | {facts["runs"]} ({share:.0f} %) | {exhaustive[0]} | 0 |
| seconds on {facts["processors"]} processors | {facts["seconds"]} | {exhaustive[1]} | {facts["continued_seconds"]} |
| processor seconds | {facts["processor_seconds"]} | {exhaustive[2]} | |

* Outcomes that differ from the exhaustive search: {len(facts["differing"])}.
* Runs with the same events as `memdiag record --phantom` (action, size, address, stream): {alone} that were compared.
* The same search again in the same directory gives the same table: {"yes" if facts["continued_is_same"] else "no"}.
"""


if __name__ == "__main__":
    main()
