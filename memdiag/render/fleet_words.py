"""The words of a report on many ranks, for the terminal and for markdown: rows of tables, and the heat map as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from memdiag.quoting import file_argument
from memdiag.render.text import plain
from memdiag.units import format_bytes, format_count, format_ranges, plural

if TYPE_CHECKING:
    from memdiag.fleet.model import Checked, Difference, FleetReport, HeatMap, Rank

SHADES = "·░▒▓█"
LONGEST = 160
KINDS = {"optimizer_state": "optimizer state", "unused": "reserved, not in use", "unknown": "unknown kind"}
NO_FLAT = 0.1  # of the highest value: differences below a tenth are not stretched over all shades


class HeatRow(NamedTuple):
    """Some ranks of the heat map: their name, a shade for each column, and what is to be said of them."""

    name: str
    shades: str
    said: str


class ValueRow(NamedTuple):
    """The same with bytes for each column; None: none there."""

    name: str
    values: list[int | None]
    said: str


class Heat(NamedTuple):
    """A heat map: names of its columns, its rows, and the ends of its scale in bytes."""

    columns: list[str]
    rows: list[ValueRow]
    low: int
    high: int


def state(report: FleetReport) -> tuple[str, str]:
    """Returns the label of the verdict and its colour."""
    if not report.ranks:
        return "NOTHING READ", "bold red"
    if any(row.ran_out for row in report.ranks):
        return "OUT OF MEMORY", "bold red"
    if any(odd.delta_bytes > 0 for odd in report.odd) or report.broken:
        return "WARNING", "yellow"
    return "OK", "green"


def facts(report: FleetReport) -> Iterator[tuple[str, str]]:
    """Yields what was looked at: name and value."""
    shown = format_ranges((row.rank for row in report.ranks), 60)
    of = f" of a job of {format_count(report.world)}" if report.world else ""
    yield "ranks", f"{shown}{of}" if report.ranks else "none"
    yield "files", f"{plural(len(report.ranks), 'trace')} read" + (f", {len(report.broken)} broken" if report.broken else "")
    if report.num_kept:
        yield "kept", f"{format_count(report.num_kept)} of them as read by an earlier run"
    if report.backends:
        yield (
            "recorded on",
            ", ".join(plain(name) for name in report.backends) + (" (a device that is not there)" if report.phantom else ""),
        )


def signed(size: int) -> str:
    """Returns ``+1.20 GiB``, ``-3.00 MiB``."""
    return f"{'+' if size > 0 else '-' if size < 0 else ''}{format_bytes(abs(size))}"


def difference(each: Difference) -> tuple[str, str, str]:
    """Returns bytes, what, and how many tensors here against there."""
    what = KINDS.get(each.kind, each.kind.replace("_", " "))
    if each.part:
        what = f"{what}: {plain(each.part, LONGEST)}"
    there = f"{format_count(each.num_here)} / {format_count(each.num_there)}" if each.num_here or each.num_there else ""
    return signed(each.delta_bytes), what, there


def tight(report: FleetReport, most: int) -> list[Rank]:
    """Returns the ranks with the least headroom, those that ran out first."""
    known = [row for row in report.ranks if row.headroom_bytes is not None or row.ran_out]
    return sorted(known, key=lambda row: (not row.ran_out, row.headroom_bytes or 0, row.rank))[:most]


def left(row: Rank) -> str:
    """Returns the headroom of a rank in words."""
    if not row.ran_out:
        return format_bytes(row.headroom_bytes)
    return "ran out" if not row.headroom_bytes else f"{format_bytes(-row.headroom_bytes)} short"


def where(row: Rank) -> str:
    """Returns step and phase of a peak, or of the request that failed."""
    step, phase = (row.failed or {}).get("step", row.step), (row.failed or {}).get("phase", row.phase)
    words = [f"step {step}" if step is not None else "", plain(phase) if phase else ""]
    return ", ".join(word for word in words if word)


def heat_values(report: FleetReport, heat: HeatMap, most_rows: int, most_columns: int) -> Heat:
    """Returns the heat map in at most so many rows and columns, each the highest of what it stands for."""
    values = [value for row in heat.rows for value in row if value is not None]
    if not values:
        return Heat([], [], 0, 0)
    high = max(values)
    low = min(*values, round(high * (1 - NO_FLAT)))
    by_rank = {row.rank: row for row in report.ranks}
    odd = {rank for each in report.odd if each.delta_bytes > 0 for rank in each.ranks}
    columns = _parts(len(heat.columns), most_columns)
    rows = []
    for begin, end in _parts(len(heat.ranks), most_rows):
        members = heat.ranks[begin:end]
        highest = [_highest(row[column] for row in heat.rows[begin:end]) for column in range(len(heat.columns))]
        cells = [_highest(highest[first:last]) for first, last in columns]
        failed = [rank for rank in members if by_rank[rank].ran_out]
        apart = [rank for rank in members if rank in odd and rank not in failed]
        said = [f"{format_ranges(failed, 14)} ran out" if len(members) > 1 else "ran out"] if failed else []
        said += [f"{format_ranges(apart, 14)} odd" if len(members) > 1 else "odd"] if apart else []
        rows.append(ValueRow(format_ranges(members, 12), cells, ", ".join(said)))
    names = [heat.columns[first] if last - first == 1 else f"{heat.columns[first]} to {heat.columns[last - 1]}" for first, last in columns]
    return Heat(names, rows, low, high)


def heat_rows(report: FleetReport, heat: HeatMap, most_rows: int, most_columns: int) -> tuple[list[HeatRow], int, int]:
    """Returns the same with a character for each value, and the ends of the scale."""
    drawn = heat_values(report, heat, most_rows, most_columns)
    shades = ["".join(_shade(value, drawn.low, drawn.high) for value in row.values) for row in drawn.rows]
    return [HeatRow(row.name, text, row.said) for row, text in zip(drawn.rows, shades, strict=True)], drawn.low, drawn.high


def _parts(count: int, most: int) -> list[tuple[int, int]]:
    """Divides 0 … count into at most ``most`` parts of almost equal size."""
    number = min(count, max(most, 1))
    return [(at * count // number, (at + 1) * count // number) for at in range(number)]


def _highest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _shade(value: int | None, low: int, high: int) -> str:
    if value is None:
        return " "
    return SHADES[min(int((value - low) / max(high - low, 1) * len(SHADES)), len(SHADES) - 1)]


def checked_words(checked: Checked) -> list[str]:
    """Returns what replaying the line on every rank has shown, in sentences."""
    before, after = len(checked.failing_before), len(checked.failing_after)
    fell = f"from {format_bytes(checked.peak_before_bytes)} to {format_bytes(checked.peak_after_bytes)}"
    said = [f"Replayed on {plural(checked.num_ranks, 'rank')}: the highest reserved peak goes {fell} (rank {checked.rank_after})."]
    if before or after:
        still = f" ({format_ranges(checked.failing_after, 40)})" if after else ""
        said.append(
            f"Ranks in which a request fails: {format_count(before)} under the recorded settings, {format_count(after)} under this{still}."
        )
    if before > after:
        said.append("Ranks that failed were recorded up to the failed allocation; the rest of their runs is unknown.")
    if checked.worse:
        said.append(f"Ranks that would need more than before: {format_ranges(checked.worse, 60)}.")
    if checked.not_replayed:
        said.append(f"Could not be replayed: ranks {format_ranges(checked.not_replayed, 60)}.")
    return said


def next_steps(report: FleetReport) -> list[tuple[str, str]]:
    """Returns what to look at next: purpose and command."""
    if not report.ranks:
        return []
    names = {row.rank: plain(row.file) for row in report.ranks}
    worst = tight(report, 1) or [max(report.ranks, key=lambda row: row.peak_bytes)]
    found = [(f"rank {worst[0].rank} alone", f"memdiag analyze {file_argument(names[worst[0].rank])}")]
    odd = next((each for each in report.odd if each.delta_bytes > 0), None)
    if odd is not None:
        both = f"{file_argument(names[odd.against])} {file_argument(names[odd.rank])}"
        found.append((f"rank {odd.rank} beside rank {odd.against}, which holds the same", f"memdiag compare {both}"))
    return found
