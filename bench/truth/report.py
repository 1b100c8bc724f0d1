"""Writes reports/phantom-truth.md from the results of bench/truth/run.py."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPORT = Path(__file__).parents[2] / "reports" / "phantom-truth.md"
UNITS = {"B": 1, "MiB": 1 << 20, "GiB": 1 << 30, "MB": 10**6, "GB": 10**9}
CLOSE = 0.01
HEAD = """# Simulated devices against published measurements of real cards

Each row is a peak that somebody else measured on a real card and published. memdiag runs the same program on a \
simulated
card, without a GPU, and compares PyTorch's own counter. No parameter was fitted. bench/truth/families.toml has the \
source,
the program and the arguments of each row; this command reproduces a family:

    python bench/truth/run.py --work FOLDER FAMILY

*Equal* means that the simulated figure, rounded as the published one, is the same in every printed digit. Seconds are
processor time of a run with recording, and host memory is the peak of its largest process; of the runs of a row, the \
larger
is given. Rows with a dash for host memory are older: host memory was not measured then, and their seconds are \
elapsed time.
"""


def grade(row: Mapping[str, Any]) -> str:
    """Returns "equal", "within 1 %", "beyond 1 %" or "failed"."""
    if row["bytes"] is None:
        return "failed"
    digits = len(row["published"].partition(".")[2])
    value, published = row["bytes"] / UNITS[row["unit"]], float(row["published"])
    if abs(value - published) <= 0.5 * 10**-digits * (1 + 1e-9):
        return "equal"
    return "within 1 %" if abs(value / published - 1) <= CLOSE else "beyond 1 %"


def write(table: Mapping[str, Any], results: Mapping[str, Any]) -> None:
    """Writes the report into reports/."""
    REPORT.write_text(text(table, results), encoding="utf-8")


def text(table: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Returns the report: the summary first, then a table for each family."""
    families = table["family"]
    done = {name: rows for name, rows in results.items() if name in families and rows}
    grades = {name: [grade(row) for row in rows.values()] for name, rows in done.items()}
    every = [each for found in grades.values() for each in found]
    rows = [row for found in done.values() for row in found.values()]
    ranks = sum(len(found) for name, found in done.items() if "--world" in families[name].get("record", ""))
    hosts = [row["host_bytes"] for row in rows if "host_bytes" in row]
    columns = ("equal", "within 1 %", "beyond 1 %", "failed")
    lines = [
        HEAD,
        f"{len(every)} rows of {len(done)} families, {ranks} of them one rank of several: "
        + ", ".join(f"{every.count(column)} {column}" for column in columns)
        + f". A row takes {statistics.median(row['seconds'] for row in rows):.0f} s of processor time (median), "
        f"{max(row['seconds'] for row in rows):.0f} s at most, and "
        f"{statistics.median(hosts) / 2**20:,.0f} MiB of host memory (median), {max(hosts) / 2**20:,.0f} MiB at most.",
        "",
        _repeated(rows),
        "",
        "| family | rows | " + " | ".join(columns) + " | largest error |",
        "|---|---:|" + "---:|" * (len(columns) + 1),
    ]
    for name, found in grades.items():
        worst = max((abs(error) for row in done[name].values() if (error := _error(row)) is not None), default=0)
        counts = " | ".join(str(found.count(column)) for column in columns)
        lines.append(f"| [{name}](#{name}) | {len(found)} | {counts} | {worst:.2%} |")
    for name, rows_of in done.items():
        lines += ["", f"## {name}", "", *_family(families[name], rows_of)]
    lines += ["", "## Left out", "", *(f"* {each}" for each in table.get("left_out", ()))]
    return "\n".join(lines) + "\n"


def _repeated(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns how often the rows were run, and in how many of them all runs gave the same figure."""
    runs, same = [row["runs"] for row in rows], sum(row["same"] for row in rows)
    return (
        f"{sum(runs)} runs, at least {min(runs)} of each row. In {same} of {len(rows)} rows, all runs gave the same "
        "figure to the byte; rows whose runs differ are marked."
    )


def _family(family: Mapping[str, Any], rows: Mapping[str, Any]) -> list[str]:
    said = [
        f"{family['title']}: {family['measure']}.",
        "",
        f"* Published: {family['source']}; {family['hardware']}; {family['versions']}.",
        f"* Simulated: `{family['device']}`"
        + (f", `{family['record']}`" if family.get("record") else "")
        + (
            f"; the program is {family['checkout']}, unchanged."
            if "checkout" in family
            else "; the program is in bench/truth/programs."
        ),
        *(f"* {note}" for note in family.get("notes", ())),
        "",
        "| row | published | simulated | error | | s | host MiB |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    for name, row in rows.items():
        unit, digits = row["unit"], len(row["published"].partition(".")[2])
        shown = "—" if row["bytes"] is None else f"{row['bytes'] / UNITS[unit]:,.{digits}f} {unit}"
        error = _error(row)
        words = grade(row) if row["same"] or row["bytes"] is None else f"{grade(row)}; runs differ"
        words += f": {row['error'][:120]}" if row["error"] else ""
        said.append(
            f"| {name} | {row['published']} {unit} | {shown} | {'' if error is None else f'{error:+.2%}'} | {words} | "
            f"{row['seconds']:.0f} | {_host(row)} |"
        )
    return said


def _host(row: Mapping[str, Any]) -> str:
    """Returns the peak host memory of a row in MiB; rows made before it was measured have none."""
    return f"{row['host_bytes'] / 2**20:,.0f}" if "host_bytes" in row else "—"


def _error(row: Mapping[str, Any]) -> float | None:
    """Returns the relative error; 0 where the printed digits are equal."""
    if row["bytes"] is None:
        return None
    return 0.0 if grade(row) == "equal" else row["bytes"] / UNITS[row["unit"]] / float(row["published"]) - 1
