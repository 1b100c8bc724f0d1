"""Reads public start-up logs of inference servers, and writes the table of reports/serving-logs.md.

    python bench/serving_logs.py FOLDER

The logs belong to their authors and are not part of the repository. FOLDER has a copy of each, and ``index.tsv`` with a
line for each: name of the file, title of the thread, URL; the last is empty if the log has no public address.
"""

from __future__ import annotations

import sys
from pathlib import Path

from memdiag.results.serving import ServingCard, ServingReport
from memdiag.serving.read import read_log
from memdiag.units import GIB

COLUMNS = (
    ("weights", ("weights", "weights_and_other")),
    ("KV cache", ("kv_cache",)),
    ("activations", ("activations", "activations_and_other")),
    ("graphs", ("graphs",)),
    ("other", ("other", "before_start")),
    ("free or outside", ("free", "free_or_outside")),
    ("unknown", ("unknown",)),
    ("rounding", ("rounding", "overlap")),
)


def row(report: ServingReport, card: ServingCard, thread: str, url: str) -> str:
    """Returns the row of a log's first card, in GiB."""
    cells = []
    for _, kinds in COLUMNS:
        found = [part.bytes for part in card.parts if part.kind in kinds]
        known = [size for size in found if size is not None]
        cells.append(f"{sum(known) / GIB:.2f}" if known else ("?" if found else ""))
    total = "" if card.total_bytes is None else f"{card.total_bytes / GIB:.2f}"
    what = {"card": "card", "free_at_start": "free at start", "unknown": "not in the log"}[card.whole]
    engine = f"{report.program} {report.version}".strip()
    return " | ".join(
        ["", f"[{thread}]({url})" if url else thread, engine, *cells, f"{card.sum_bytes / GIB:.2f}", total, what, ""]
    ).strip()


def main(folder: Path) -> None:
    """Prints the table."""
    names = ["log", "engine", *(name for name, _ in COLUMNS), "sum", "whole", "the whole is"]
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for line in (folder / "index.tsv").read_text(encoding="utf-8").splitlines():
        name, thread, url = line.split("\t")
        report = read_log(str(folder / name))
        print(row(report, report.cards[0], thread, url))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
