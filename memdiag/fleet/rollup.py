"""Combines many results into one report: ranks out of memory, highest peaks and causes, distribution, all findings."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from memdiag.fleet.compare import unused
from memdiag.fleet.files import File, number_of
from memdiag.fleet.groups import groups_of, odd_ones
from memdiag.fleet.heat import heat_of
from memdiag.fleet.numbers import assign
from memdiag.fleet.work import Result
from memdiag.results.finding import SEVERITIES, Fix
from memdiag.results.fleet import Bin, FleetReport, Merged, Outlier, Rank, RankGroup, UnreadableFile
from memdiag.runs.cards import shared_cards
from memdiag.text import Phrase, joined, phrase
from memdiag.units import KIB, format_bytes, format_ranges

Facts = Mapping[str, Any]
_BINS = 10
_MOST_MISSING = 64  # missing ranks beyond which only their number is shown
_PLACE = re.compile(r"\s+")


def roll_up(
    files: Sequence[File], results: Sequence[Result], *, capacity: int | None = None, num_kept: int = 0
) -> FleetReport:
    """Builds the report.

    Args:
        files: The files, in order.
        results: Their results.
        capacity: Bytes of the devices, or None for the recorded value.
        num_kept: Number of results reused from an earlier run.
    """
    good = [(file, result["facts"]) for file, result in zip(files, results, strict=True) if "facts" in result]
    numbers, said = assign([file.name for file, _ in good], [facts for _, facts in good])
    ranks: dict[int, Facts] = {
        number: facts for number, (_, facts) in sorted(zip(numbers, good, strict=True), key=lambda pair: pair[0])
    }
    names = {number: file.name for number, (file, _) in zip(numbers, good, strict=True)}
    broken = tuple(
        UnreadableFile(file.name, number_of(file.name), result["error"]["message"], result["error"]["hint"])
        for file, result in zip(files, results, strict=True)
        if "error" in result
    )
    groups = groups_of(ranks)
    home = {rank: group.number for group in groups for rank in group.ranks}
    rows = tuple(_rank(number, names[number], home[number], facts, capacity) for number, facts in ranks.items())
    odd = odd_ones(ranks, groups)
    world = max((facts["world"] for facts in ranks.values() if facts.get("world")), default=None)
    return FleetReport(
        verdict=tuple(_verdict(rows, groups, odd, broken, _states(ranks))),
        ranks=rows,
        groups=tuple(groups),
        outliers=tuple(odd),
        distribution=bins_of({row.rank: row.peak_bytes for row in rows if row.peak_bytes}),
        findings=tuple(merged(ranks)),
        heatmap=heat_of(ranks),
        unreadable=broken,
        notes=(*said, *_notes(rows, ranks, world, broken), *_quality(ranks)),
        world_size=world,
        backends=tuple(sorted({facts["backend"] or "unknown" for facts in ranks.values()})),
        is_phantom=any(facts.get("phantom") for facts in ranks.values()),
        num_kept=num_kept,
        cards=shared_cards({number: facts.get("uses") or () for number, facts in ranks.items()}),
    )


def worst_of(rows: Sequence[Rank]) -> Rank:
    """Returns the worst rank: one that ran out of memory, else the smallest headroom, else the highest peak."""
    return min(
        rows,
        key=lambda row: (
            not row.is_out_of_memory,
            row.headroom_bytes if row.headroom_bytes is not None else 0,
            -row.peak_bytes,
            row.rank,
        ),
    )


def _rank(number: int, name: str, group: int, facts: Facts, capacity: int | None) -> Rank:
    size = capacity if capacity is not None else facts.get("capacity_bytes")
    failed = facts.get("failed")
    reserved = facts.get("peak_reserved_bytes")
    headroom = None if size is None or reserved is None else size - (facts.get("outside_bytes") or 0) - reserved
    if failed and capacity is None:
        free = failed.get("device_free_bytes")
        held = failed.get("reserved_bytes")
        left = free if free is not None else size - held if size is not None and held is not None else None
        headroom = None if left is None else min(left - failed["requested_bytes"], 0)
    return Rank(
        rank=number,
        file=name,
        group=group,
        device=facts.get("device"),
        capacity_bytes=size,
        peak_reserved_bytes=reserved,
        peak_allocated_bytes=facts.get("peak_allocated_bytes"),
        headroom_bytes=headroom,
        is_out_of_memory=bool(failed),
        last_failure=failed,
        num_retries=facts.get("num_retries"),
        step=facts.get("peak_step"),
        phase=facts.get("peak_phase"),
        unused_bytes=unused(facts),
        num_events=facts["num_events"],
        conf=facts.get("conf"),
        torch_version=facts.get("torch_version"),
        headline=facts["headline"],
        by_category=facts.get("by_category", {}),
    )


def bins_of(peaks: Mapping[int, int]) -> tuple[Bin, ...]:
    """Returns at most ten equal ranges of peaks that contain all ranks; their width is a power of two."""
    if not peaks:
        return ()
    low, high = min(peaks.values()), max(peaks.values())
    width = KIB
    while high // width - low // width >= _BINS:
        width *= 2
    held: dict[int, list[int]] = {}
    for rank, peak in peaks.items():
        held.setdefault(peak // width, []).append(rank)
    return tuple(
        Bin(number * width, (number + 1) * width, tuple(sorted(held.get(number, ()))))
        for number in range(low // width, high // width + 1)
    )


def merged(ranks: Mapping[int, Facts]) -> list[Merged]:
    """Returns the findings of all ranks, merged by code and call site, worst first."""
    alike: dict[tuple[str, str], list[tuple[int, Mapping[str, Any]]]] = {}
    for rank, facts in ranks.items():
        for finding in facts.get("findings", ()):
            alike.setdefault((finding["code"], _PLACE.sub(" ", finding["place"])), []).append((rank, finding))
    found = []
    for (code, place), members in alike.items():
        severity = min((finding["severity"] for _, finding in members), key=SEVERITIES.index)
        rank, most = max(members, key=lambda member: (member[1]["weight_bytes"], -member[0]))
        weights = [finding["weight_bytes"] for _, finding in members]
        fixes = tuple(Fix(*fix) for fix in most["fixes"])
        found.append(
            Merged(
                code,
                severity,
                most["title"],
                place,
                tuple(sorted({member[0] for member in members})),
                rank,
                min(weights),
                max(weights),
                fixes,
            )
        )
    return sorted(found, key=lambda each: (SEVERITIES.index(each.severity), -each.high_bytes, each.code, each.site))


# ---------------------------------------------------------------------------------------------------------- the verdict


def _verdict(
    rows: Sequence[Rank],
    groups: Sequence[RankGroup],
    odd: Sequence[Outlier],
    broken: Sequence[UnreadableFile],
    states: Collection[int],
) -> list[str]:
    if not rows:
        return [phrase("fleet.nothing")]
    failed = [row for row in rows if row.is_out_of_memory]
    said = [_fate(rows, failed, states), _headroom(rows, failed), _spread(rows, groups, odd)]
    if broken:
        said.append(phrase("fleet.broken", count=len(broken)))
    return [sentence for sentence in said if sentence]


def _states(ranks: Mapping[int, Facts]) -> list[int]:
    """Returns the ranks whose file has only a final state, without history."""
    return [rank for rank, facts in ranks.items() if not facts.get("has_history", True)]


def _fate(rows: Sequence[Rank], failed: Sequence[Rank], states: Collection[int]) -> Phrase:
    if not failed:
        highest = max(rows, key=lambda row: (row.peak_bytes, -row.rank))
        known = all(row.num_retries is not None for row in rows)  # otherwise a file has no record of driver requests
        one = "one" if len(rows) == 1 else "many"
        none = phrase(f"fleet.none.{one}" if known else f"fleet.unknown.{one}")
        facts = {"rank": str(highest.rank), "bytes": format_bytes(highest.peak_bytes)}
        needs = phrase("fleet.held" if highest.rank in states else "fleet.needs", **facts)
        return phrase("fleet.fits", count=len(rows), none=none, most=needs)
    worst = worst_of(rows)
    request = (worst.last_failure or {}).get("requested_bytes")
    asked = phrase("fleet.failed.request", bytes=format_bytes(int(request))) if isinstance(request, int) else ""
    which = phrase(
        "fleet.failed.only" if len(failed) == 1 else "fleet.failed.worst", rank=str(worst.rank), request=asked
    )
    if len(failed) == len(rows):
        return phrase("fleet.failed.all", count=len(rows), which=which)
    ranks = phrase("fleet.failed.ranks", ranks=_few(failed)) if len(failed) > 1 else ""
    return phrase("fleet.failed", failed=len(failed), count=len(rows), ranks=ranks, which=which)


def _few(rows: Sequence[Rank]) -> str:
    return format_ranges((row.rank for row in rows), 40)


def _headroom(rows: Sequence[Rank], failed: Sequence[Rank]) -> Phrase | str:
    known = sorted(
        (row for row in rows if row.headroom_bytes is not None and not row.is_out_of_memory),
        key=lambda row: (row.headroom_bytes or 0, row.rank),
    )
    if not known or len(failed) == len(rows):
        return ""
    least, middle = known[0], known[(len(known) - 1) // 2]
    sizes = {"bytes": format_bytes(least.headroom_bytes), "capacity": format_bytes(least.capacity_bytes)}
    median = phrase("fleet.median", bytes=format_bytes(middle.headroom_bytes)) if len(known) > 2 else ""
    if not failed and least.rank == max(rows, key=lambda row: (row.peak_bytes, -row.rank)).rank:
        return phrase("fleet.leaves.least" if len(known) > 1 else "fleet.leaves", median=median, **sizes)
    return phrase("fleet.headroom.others" if failed else "fleet.headroom", rank=str(least.rank), median=median, **sizes)


def _spread(rows: Sequence[Rank], groups: Sequence[RankGroup], odd: Sequence[Outlier]) -> Phrase | str:
    """Returns the cause of the largest difference."""
    more = next((each for each in odd if each.delta_bytes > 0), None)
    if more is not None:
        facts = {"bytes": format_bytes(more.delta_bytes), "why": more.explanation}
        if len(more.ranks) == 1:
            return phrase("fleet.outlier", rank=str(more.rank), **facts)
        return phrase("fleet.outliers", count=len(more.ranks), ranks=_short(more.ranks), **facts)
    apart = [group for group in groups if group.explanation]
    if apart:
        far = max(
            apart,
            key=lambda group: (
                group.median_bytes - _usual(groups, group) > 0,
                abs(group.median_bytes - _usual(groups, group)),
            ),
        )
        other = str(groups[far.reference_group or 0].median_rank)
        if len(far.ranks) == 1:
            return phrase("fleet.part", rank=str(far.ranks[0]), other=other, why=far.explanation)
        return phrase("fleet.parts", ranks=_short(far.ranks), other=other, why=far.explanation)
    wide = max(
        (group for group in groups if group.spread_explanation),
        key=lambda group: group.high_bytes - group.low_bytes,
        default=None,
    )
    if wide is not None:
        return phrase("fleet.differ", why=wide.spread_explanation)
    peaks = [row.peak_bytes for row in rows]
    return phrase("fleet.same") if len(rows) > 2 and max(peaks) - min(peaks) < 0.02 * max(peaks) else ""


def _usual(groups: Sequence[RankGroup], group: RankGroup) -> int:
    return groups[group.reference_group or 0].median_bytes


def _short(ranks: Sequence[int]) -> str:
    return format_ranges(ranks, 30)


def _notes(
    rows: Sequence[Rank], ranks: Mapping[int, Facts], world: int | None, broken: Sequence[UnreadableFile]
) -> list[str]:
    """Returns notes on the files: missing ranks, and settings, versions or kinds that differ."""
    said: list[str] = []
    if world and world <= 1 << 20:
        there = {row.rank for row in rows} | {each.rank for each in broken if each.rank is not None}
        missing = [rank for rank in range(world) if rank not in there]
        if missing:
            which = phrase("fleet.missing.ranks", ranks=_short(missing)) if len(missing) <= _MOST_MISSING else ""
            said.append(phrase("fleet.missing", world=world, count=len(missing), ranks=which))
    if states := _states(ranks):
        said.append(phrase("fleet.states", ranks=_short(states)))
    for name, key in (
        ("backend", "backend"),
        ("version", "torch_version"),
        ("settings", "conf"),
        ("capacity", "capacity_bytes"),
    ):
        values: dict[Any, list[int]] = {}
        for rank, facts in ranks.items():
            values.setdefault(facts.get(key), []).append(rank)
        if len(values) > 1:
            ordered = sorted(values.items(), key=lambda item: -len(item[1]))
            shown: list[str] = [
                phrase("fleet.differs.value", value=_value(key, value), ranks=_short(own)) for value, own in ordered[:6]
            ]
            shown += ["…"] if len(ordered) > 6 else []
            said.append(phrase(f"fleet.differs.{name}", values=joined(shown, "; ")))
    return said


def _quality(ranks: Mapping[int, Facts]) -> list[str]:
    """Returns the notes of traces (codes MD9xx), each code once: the number of ranks, and the first text."""
    of_code: dict[str, dict[int, str]] = {}
    reported = dict.fromkeys(_states(ranks), "MD906")  # no history: reported already
    for rank, facts in ranks.items():
        for code, text in facts.get("notes", ()):
            if reported.get(rank) != code:
                own = of_code.setdefault(code, {})
                own[rank] = joined([own[rank], text], "; ") if rank in own else text
    ordered = sorted(of_code.items())
    return [phrase("fleet.note", code=code, ranks=_which(own, len(ranks)), text=own[min(own)]) for code, own in ordered]


def _which(own: Mapping[int, str], num_ranks: int) -> Phrase | str:
    """Returns the ranks with a note, and the rank of the shown text if the texts differ."""
    if num_ranks == 1:
        return ""
    if len(own) == 1:
        return phrase("fleet.note.rank", rank=str(min(own)))
    here = phrase("fleet.note.here", rank=str(min(own))) if len(set(own.values())) > 1 else ""
    if len(own) == num_ranks:
        return phrase("fleet.note.all", count=num_ranks, here=here)
    return phrase("fleet.note.some", count=len(own), ranks=_short(sorted(own)), of=num_ranks, here=here)


def _value(key: str, value: Any) -> str:
    if value is None:
        return phrase("fleet.value.unknown")
    return format_bytes(value) if key == "capacity_bytes" else str(value) or phrase("fleet.value.none")
