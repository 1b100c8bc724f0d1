"""Compares the engine with recorded rows of the real allocators:  oracle_check.py FOLDER…

It checks every file with every setting, every column of every row. Prints the differences, and their number of rows.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from tests.allocator.recorded_rows import failing_rows, files, workload_of


def main(folders: list[Path]) -> int:
    """Returns the number of different rows."""
    total = rows = runs = 0
    start = time.perf_counter()
    for folder in folders:
        for path in files(folder):
            recorded = np.load(path)
            work = workload_of(recorded)
            policy = "npu" if "0/addr" in recorded else "caching"
            for setting, conf in enumerate(recorded["confs"].tolist()):
                bad, words = failing_rows(recorded, setting, work, policy)
                runs += 1
                rows += len(work.op)
                total += len(bad)
                if len(bad):
                    print(
                        f"{folder.name}/{path.name} {conf!r}: {len(bad)} of {len(work.op)} rows differ; {words}",
                        flush=True,
                    )
    print(f"{runs} runs, {rows:,} rows, failing rows: {total} ({time.perf_counter() - start:.0f} s)")
    return total


if __name__ == "__main__":
    sys.exit(1 if main([Path(name) for name in sys.argv[1:]]) else 0)
