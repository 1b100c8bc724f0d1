"""Would a program's own pools (``--policy mempool``) do better by module? Writes reports/mempool-modules.md.

Replays the recordings of the lifecycle study.

    python bench/study/modules.py --recordings FOLDER [--only 7b-s4096]

FOLDER is what record.py left. Every recording that ran to its end is replayed without a limit, so that what counts is the reserved peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from policies import title_of
from record import read_back

from memdiag.units import GIB

REPORT = Path(__file__).parents[2] / "reports" / "mempool-modules.md"
POLICY = {"cuda": "mempool", "npu": "npu-mempool"}
# What stands in --conf, and over the column.
WAYS = {
    "scopes=weights": "weights only",
    "scopes=weights+optimizer": "weights, optimizer",
    "modules=all": "and one for all layers",
    "modules=parts": "one for each kind of part",
    "modules=each": "one for each layer",
}
UNLIMITED = 1 << 50
WORDS = """# Pools of a program's own, by module

    python bench/study/modules.py --recordings FOLDER

`--policy mempool` with pools for fewer and for more scopes, on the recordings of the lifecycle study (study-traces.md), each replayed
without a limit of memory. GiB reserved at the peak; the first column is the plain caching allocator.

Each further pool costs: what is free in one cannot serve another, and layers run one after the other, so that what one has freed is just
what the next could use. A pool for each kind of part (attention, MLP) is sometimes a little better than one for all layers, where MLPs are
recomputed, and more often worse; one for each layer is worse throughout, and far worse where backward computes layers again. So one pool
for all layers is the default, and fewer pools are better than that.
"""


def peaks(trace: Path, backend: str) -> list[int]:
    """Returns the reserved peaks (bytes): plain, then every way."""
    start = [sys.executable, "-m", "memdiag", "simulate", str(trace), "--json", "--capacity", str(UNLIMITED)]
    plain = [*start, "--policy", "npu" if backend == "npu" else "caching", "--conf", ""]
    pooled = [*start, "--policy", POLICY[backend], *(word for way in WAYS for word in ("--conf", way))]
    return [
        result["peak_reserved_bytes"]
        for command in (plain, pooled)
        for result in json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["results"]
    ]


def lines(folder: Path, device: str, only: str) -> Iterator[str]:
    """Yields the part of the report about the recordings of one device."""
    rows = [row for row in read_back(folder) if row.fits and only in row.job.name]
    if not rows:
        return
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda row: peaks(folder / row.job.name, device.partition(":")[0]), rows))
    yield from ("", f"## {device}", "")
    yield "| configuration | instead | caching | " + " | ".join(WAYS.values()) + " |"
    yield "|---|---|" + "--:|" * (1 + len(WAYS))
    for row, values in zip(rows, found, strict=True):
        print(row.job.name, *(f"{value / GIB:.2f}" for value in values), flush=True)
        yield f"| {title_of(row.job)} | {row.job.variant} | " + " | ".join(f"{value / GIB:.2f}" for value in values) + " |"
    shares = [median(values[i] / values[0] - 1 for values in found) for i in range(1 + len(WAYS))]
    yield "| above caching, median | | " + " | ".join(f"{share:.1%}" for share in shares) + " |"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=Path, required=True, help="what record.py left")
    parser.add_argument("--only", default="", help="a part of the names")
    args = parser.parse_args()
    text = [WORDS.rstrip()]
    for index in sorted(args.recordings.glob("*/index.json"), reverse=True):
        text += lines(index.parent, json.loads(index.read_text())["device"], args.only)
    REPORT.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
