"""The words of a report on many ranks: rows of tables, and the heat map as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from memdiag import vocabulary
from memdiag.quoting import file_argument
from memdiag.text import Phrase, joined, phrase, plain
from memdiag.units import format_bytes, format_count, format_ranges

if TYPE_CHECKING:
    from memdiag.results.fleet import FleetReport, GroupDifference, HeatMap, Outlier, Rank, SettingsCheck

SHADES = "·░▒▓█"
LONGEST = 160
NO_FLAT = 0.1  # fraction of the highest value: smaller differences do not use all shades


class HeatRow(NamedTuple):
    """A row of the heat map for some ranks: name, a shade for each column, and a remark."""

    name: str
    shades: str
    said: str


class ValueRow(NamedTuple):
    """The same with bytes for each column, or None without data."""

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
        return phrase("fleet.state.nothing"), "bold red"
    if any(row.is_out_of_memory for row in report.ranks):
        return phrase("fleet.state.oom"), "bold red"
    if any(odd.delta_bytes > 0 for odd in report.outliers) or report.unreadable:
        return phrase("summary.severity.warning"), "yellow"
    return phrase("summary.severity.ok"), "green"


def facts(report: FleetReport) -> Iterator[tuple[str, str]]:
    """Yields the facts about the input: name and value."""
    shown = format_ranges((row.rank for row in report.ranks), 60)
    ranks = phrase("fleet.facts.ranks.of", ranks=shown, world=report.world_size) if report.world_size else shown
    yield phrase("fleet.facts.ranks"), ranks if report.ranks else phrase("fleet.facts.none")
    broken = phrase("fleet.facts.broken", count=len(report.unreadable)) if report.unreadable else ""
    yield phrase("fleet.facts.files"), joined((phrase("fleet.facts.read", count=len(report.ranks)), broken), ", ")
    if report.num_kept:
        yield phrase("fleet.facts.kept"), phrase("fleet.facts.kept.by", count=report.num_kept)
    if report.backends:
        names = ", ".join(plain(name) for name in report.backends)
        yield (
            phrase("fleet.facts.backends"),
            phrase("fleet.facts.phantom", names=names) if report.is_phantom else names,
        )


def signed(size: int) -> str:
    """Returns ``+1.20 GiB``, ``-3.00 MiB``."""
    return f"{'+' if size > 0 else '-' if size < 0 else ''}{format_bytes(abs(size))}"


def difference(each: GroupDifference) -> tuple[str, str, str]:
    """Returns bytes, description, and the number of tensors in both ranks."""
    what: str = phrase("fleet.unused") if each.category == "unused" else vocabulary.name("category", each.category)
    if each.part:
        what = phrase("fleet.kind.part", kind=what, part=plain(each.part, LONGEST))
    there = (
        f"{format_count(each.num_tensors)} / {format_count(each.reference_num_tensors)}"
        if each.num_tensors or each.reference_num_tensors
        else ""
    )
    return signed(each.delta_bytes), what, there


def odd_words(each: Outlier) -> Phrase:
    """Returns which ranks are outliers, and which rank they are compared with."""
    here = {"rank": str(each.rank), "other": str(each.reference_rank)}
    if len(each.ranks) == 1:
        return phrase("fleet.odd.one", **here)
    return phrase("fleet.odd.several", count=len(each.ranks), ranks=format_ranges(each.ranks, 40), **here)


def tight(report: FleetReport, most: int) -> list[Rank]:
    """Returns the ranks with the least headroom, ranks out of memory first."""
    known = [row for row in report.ranks if row.headroom_bytes is not None or row.is_out_of_memory]
    return sorted(known, key=lambda row: (not row.is_out_of_memory, row.headroom_bytes or 0, row.rank))[:most]


def left(row: Rank) -> str:
    """Returns the headroom of a rank in words."""
    if not row.is_out_of_memory:
        return format_bytes(row.headroom_bytes)
    return (
        phrase("fleet.short", bytes=format_bytes(-row.headroom_bytes))
        if row.headroom_bytes
        else phrase("fleet.ran_out")
    )


def where(row: Rank) -> str:
    """Returns step and phase of a peak, or of the failed request."""
    step, phase = (row.last_failure or {}).get("step", row.step), (row.last_failure or {}).get("phase", row.phase)
    at = phrase("places.step", step=str(step)) if step is not None else ""
    return joined((at, vocabulary.name("phase", plain(phase)) if phase else ""), ", ")


def heat_values(report: FleetReport, heat: HeatMap, most_rows: int, most_columns: int) -> Heat:
    """Returns the heat map in limited rows and columns, each the highest of the values it represents."""
    values = [value for row in heat.rows for value in row if value is not None]
    if not values:
        return Heat([], [], 0, 0)
    high = max(values)
    low = min(*values, round(high * (1 - NO_FLAT)))
    by_rank = {row.rank: row for row in report.ranks}
    odd = {rank for each in report.outliers if each.delta_bytes > 0 for rank in each.ranks}
    columns = _parts(len(heat.columns), most_columns)
    rows = []
    for begin, end in _parts(len(heat.ranks), most_rows):
        members = heat.ranks[begin:end]
        highest = [_highest(row[column] for row in heat.rows[begin:end]) for column in range(len(heat.columns))]
        cells = [_highest(highest[first:last]) for first, last in columns]
        failed = [rank for rank in members if by_rank[rank].is_out_of_memory]
        apart = [rank for rank in members if rank in odd and rank not in failed]
        said = [_which(phrase("fleet.ran_out"), failed, members)] if failed else []
        said += [_which(phrase("fleet.odd"), apart, members)] if apart else []
        rows.append(ValueRow(format_ranges(members, 12), cells, joined(said, ", ")))
    names = [
        heat.columns[first]
        if last - first == 1
        else phrase("fleet.to", first=heat.columns[first], last=heat.columns[last - 1])
        for first, last in columns
    ]
    return Heat(names, rows, low, high)


def _which(said: Phrase, ranks: list[int], members: Sequence[int]) -> Phrase:
    """Returns the remark on some ranks of a row, with their numbers if the row has others."""
    return phrase("fleet.which", ranks=format_ranges(ranks, 14), said=said) if len(members) > 1 else said


def heat_title(report: FleetReport) -> Phrase:
    """Returns the title of the heat map."""
    heat = report.heatmap
    what = vocabulary.name("curve", heat.curve if heat is not None else "reserved")
    return phrase("fleet.title.steps" if heat is not None and heat.axis == "step" else "fleet.title.parts", what=what)


def heat_rows(report: FleetReport, heat: HeatMap, most_rows: int, most_columns: int) -> tuple[list[HeatRow], int, int]:
    """Returns the same with a character for each value, and the ends of the scale."""
    drawn = heat_values(report, heat, most_rows, most_columns)
    shades = ["".join(_shade(value, drawn.low, drawn.high) for value in row.values) for row in drawn.rows]
    return (
        [HeatRow(row.name, text, row.said) for row, text in zip(drawn.rows, shades, strict=True)],
        drawn.low,
        drawn.high,
    )


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


def checked_words(checked: SettingsCheck) -> list[str]:
    """Returns the result of replaying the line on every rank, in sentences."""
    before, after = len(checked.failing_ranks_before), len(checked.failing_ranks_after)
    peaks = {"before": format_bytes(checked.peak_before_bytes), "after": format_bytes(checked.peak_after_bytes)}
    said: list[str] = [phrase("fleet.checked", count=checked.num_ranks, rank=str(checked.peak_rank_after), **peaks)]
    if before or after:
        still = phrase("fleet.missing.ranks", ranks=format_ranges(checked.failing_ranks_after, 40)) if after else ""
        said.append(phrase("fleet.checked.failing", before=before, after=after, ranks=still))
    if before > after:
        said.append(phrase("fleet.checked.unknown"))
    if checked.worse_ranks:
        said.append(phrase("fleet.checked.worse", ranks=format_ranges(checked.worse_ranks, 60)))
    if checked.not_replayed_ranks:
        said.append(phrase("fleet.checked.not_replayed", ranks=format_ranges(checked.not_replayed_ranks, 60)))
    return said


def next_steps(report: FleetReport) -> list[tuple[str, str]]:
    """Returns the next steps: purpose and command."""
    if not report.ranks:
        return []
    names = {row.rank: plain(row.file) for row in report.ranks}
    worst = tight(report, 1) or [max(report.ranks, key=lambda row: row.peak_bytes)]
    found: list[tuple[str, str]] = [
        (phrase("fleet.next.alone", rank=str(worst[0].rank)), f"memdiag analyze {file_argument(names[worst[0].rank])}")
    ]
    odd = next((each for each in report.outliers if each.delta_bytes > 0), None)
    if odd is not None:
        both = f"{file_argument(names[odd.reference_rank])} {file_argument(names[odd.rank])}"
        found.append(
            (phrase("fleet.next.beside", rank=str(odd.rank), other=str(odd.reference_rank)), f"memdiag compare {both}")
        )
    return found
