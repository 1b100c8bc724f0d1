"""Writes the tables of the lifecycle study, reports/study.md and .json, from rows of plain data.

The words above the first table are written by hand and kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from memdiag.units import GIB, MIB

REPORT = Path(__file__).parents[2] / "reports" / "study.md"
MARK = "<!-- tables -->"
TITLES = (
    "caching",
    "expandable",
    "lifecycle",
    "lifecycle-stack",
    "lifetime-oracle",
    "mempool",
    "stitch",
    "plan",
    "bound",
)
SPLIT = ("rounding", "pending", "stranded", "foreign", "cache")
SUMMARY = (
    "All recordings together. Above the bound: the smallest card compared with the most bytes live at one moment. "
    "Saved: the smallest card compared with that of caching. More reserved: the peak on the card of the study compared "
    "with that of caching, if both run."
)
SMALLEST = (
    "Smallest card (memory for PyTorch) on which the training runs. ✗: larger than the card of the study, so it runs "
    "out of memory there."
)
RESERVED = (
    "Peak reserved on the card of the study. OOM: it runs out of memory; r: it runs, but only after the allocator "
    "released all cached memory at least once, which stops the device."
)
BOTH = (
    "Saved compared with caching, by both measures: smallest card, then peak reserved on the card of the study. A "
    "negative figure means a larger card, or a higher peak. OOM: caching or the policy runs out of memory on that "
    "card, so there are no two peaks to compare."
)
WHERE = (
    "Parts of the reserved memory that no tensor requested, at the peak, in MiB, for the nine under the conventions of "
    "the study."
)
STRANGERS = (
    "All figures are relative to the figure under the settings that the snapshot was recorded with: *saved* means more "
    "than 1 % below it, and *worse* more than 1 % above it. The card is the recorded one, if that is known, else it is "
    "unlimited. On an unlimited card, a peak may be high only because the allocator need not save memory, so the "
    "smallest card is the better measure. Cached memory from before a snapshot counts for the recorded settings in the "
    "second table only."
)
Row = dict[str, Any]


def gib(value: int | None) -> str:
    """Bytes as a cell."""
    return "" if value is None else f"{value / GIB:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 2) -> list[str]:
    """A markdown table, its first columns words."""
    rule = ["---"] * words + ["--:"] * (len(head) - words)
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)] + [""]


def summary(rows: Sequence[Row], titles: Sequence[str]) -> list[str]:
    """Returns the rows of a summary: each policy over all recordings of a device."""
    lines = []
    for title in titles:
        known = [(row, row["results"][title]) for row in rows if title in row["results"]]
        over = [
            result["smallest"] / least - 1 for row, result in known if (least := bound_of(row)) and result["smallest"]
        ]
        saved = [
            before - result["smallest"] for row, result in known if (before := row["results"]["caching"]["smallest"])
        ]
        runs = [(row["results"]["caching"], result) for row, result in known if not result["ooms"]]
        more = [result["reserved"] - before["reserved"] for before, result in runs if not before["ooms"]]
        cells = [f"{share:.1%}" for share in (median(over), max(over))] if over else ["", ""]
        cells += [gib(int(value)) for value in (median(saved), max(saved), min(saved))]
        cells += [
            gib(int(median(more))) if more else "",
            f"{len(runs)} of {len(known)}",
            str(sum(bool(result["retries"]) for _, result in runs)),
        ]
        lines.append([title, *cells])
    head = [
        "policy",
        "above the bound, median",
        "most",
        "saved, median",
        "best",
        "worst",
        "more reserved, median",
        "runs",
        "of these, only by retries",
    ]
    return table(head, lines, words=1)


def bound_of(row: Row) -> int | None:
    """The most bytes that are live at one moment; None: not known."""
    found: int | None = row["results"].get("bound", {}).get("smallest")
    return found


def grid(rows: Sequence[Row], titles: Sequence[str], cell: Callable[[Row, Row], str]) -> list[str]:
    """A table with a row a recording and a column a policy."""
    cells = [
        [
            row["title"],
            row["variant"],
            *(cell(row["results"][title], row) if title in row["results"] else "" for title in titles),
        ]
        for row in rows
    ]
    return table(["configuration", "instead", *titles], cells)


def smallest(result: Row, row: Row) -> str:
    """The smallest card, and whether the card of the study is smaller."""
    is_over = result["smallest"] is None or result["smallest"] > row["room"]
    return gib(result["smallest"]) + " ✗" * is_over


def reserved(result: Row, _: Row) -> str:
    """Returns the reserved peak on the study's card."""
    return "OOM" if result["ooms"] else gib(result["reserved"]) + " r" * bool(result["retries"])


def both(result: Row, row: Row) -> str:
    """Returns a policy's saving over caching: on the smallest card, and of the peak on the study's card."""
    before = row["results"]["caching"]
    is_out = bool(before["ooms"] or result["ooms"])
    peak = "OOM" if is_out else gib(before["reserved"] - result["reserved"])
    return f"{gib(minus(before['smallest'], result['smallest']))} / {peak}"


def is_plain(row: Row) -> bool:
    """True for the study's nine configurations with its own conventions, on any device."""
    return bool(row["is_of_the_nine"]) and (not row["variant"] or row["variant"].startswith("on "))


def split_rows(rows: Iterable[Row]) -> Iterable[list[str]]:
    """Parts of the free rest of reserved memory, a line a policy."""
    for row in rows:
        for title, result in row["results"].items():
            if is_plain(row) and title != "bound":
                yield [row["title"], title, *(f"{(result['split'][name] or 0) / MIB:,.0f}" for name in SPLIT)]


def device_part(device: str, rows: Sequence[Row]) -> list[str]:
    """The tables of one device."""
    titles = [title for title in TITLES if any(title in row["results"] for row in rows)]
    exact = sum(row["exact"] == 1 for row in rows)
    backend = device.partition(":")[0]
    return [
        f"## {device}",
        "",
        (
            f"{len(rows)} recordings. Of {exact} the recorded settings, replayed, reproduce every recorded address and "
            "segment. Values in GiB."
        ),
        "",
        f"![Smallest card of every policy](study-{backend}.svg)",
        "",
        SUMMARY,
        "",
        *summary(rows, titles),
        SMALLEST,
        "",
        *grid(rows, titles, smallest),
        RESERVED,
        "",
        *grid(rows, titles, reserved),
        BOTH,
        "",
        *grid(rows, [title for title in titles if title != "caching"], both),
        WHERE,
        "",
        *table(["configuration", "policy", *SPLIT], split_rows(rows)),
    ]


def strangers_part(rows: Sequence[Row]) -> list[str]:
    """Returns the part on other people's runs, replayed with each policy."""
    known = [row for row in rows if "caching" in row["results"]]
    exact = sum(row["exact"] == 1 for row in known)
    lines = [
        "## Other people's snapshots",
        "",
        f"{len(known)} public snapshots with a trace. {exact} of them are reproduced exactly, and count.",
        "",
        STRANGERS,
        "",
        "![What each policy saves](study-snapshots.svg)",
        "",
    ]
    for what, name in (("reserved", "peak reserved"), ("smallest", "smallest card")):
        cells = []
        for title in TITLES[1:]:
            shares = shares_of(known, title, what)
            if shares:
                counts = [
                    len(shares),
                    *(sum(share > least for share in shares) for least in (0.01, 0.1)),
                    sum(share < -0.01 for share in shares),
                ]
                cells.append(
                    [
                        title,
                        *map(str, counts),
                        *(f"{share:.1%}" for share in (median(shares), max(shares), min(shares))),
                    ]
                )
        lines += table([name, "of", "saved", "over 10 %", "worse", "median", "best", "worst"], cells, words=1)
    return lines


def shares_of(rows: Iterable[Row], title: str, what: str) -> list[float]:
    """Returns a policy's savings over the recorded settings, as fractions, for the snapshots with this figure."""
    shares = []
    for row in rows:
        if row["exact"] != 1:
            continue
        result, before = row["results"].get(title, {}), row["results"]["caching"]
        if what == "reserved" and (result.get("ooms") or before["ooms"]):
            continue  # what did not run held less
        after = result.get(what)
        saved = result.get("saved") if what == "reserved" else minus(before["smallest"], after)
        if after is not None and saved is not None and after + saved > 0:
            shares.append(saved / (after + saved))
    return shares


def minus(before: int | None, after: int | None) -> int | None:
    """The difference of two figures, if both are known."""
    return None if before is None or after is None else before - after


def write_report(data: dict[str, list[Row]]) -> None:
    """Writes the report, and a JSON file with its rows next to it."""
    head = REPORT.read_text(encoding="utf-8").partition(MARK)[0] if REPORT.exists() else "# The lifecycle study\n\n"
    lines = [MARK, ""]
    for device in dict.fromkeys(row["device"] for row in data["study"]):
        lines += device_part(device, [row for row in data["study"] if row["device"] == device])
    if data["snapshots"]:
        lines += strangers_part(data["snapshots"])
    REPORT.write_text(head + "\n".join(lines), encoding="utf-8")
    parts = (f'"{key}": [\n ' + ",\n ".join(json.dumps(row) for row in rows) + "\n]" for key, rows in data.items())
    REPORT.with_suffix(".json").write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")
