"""Texts on the result of ``memdiag fit`` that several forms share."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.fit import FAILS, FITS, INFERRED, RUN, TIGHT, DeviceFit, FitCell, FitReport
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

STYLES = {FITS: "green", TIGHT: "yellow", FAILS: "red"}
_MOST_LARGEST = 3
_MOST_EFFECTS = 3


def outcome(on: DeviceFit) -> Phrase:
    """Returns the outcome of a configuration on a device, with its headroom if it was run."""
    said = phrase(f"fit.outcome.{on.outcome}")
    if on.basis == INFERRED:
        return phrase("fit.inferred", outcome=said, by=on.decided_by)
    if on.headroom_bytes is None:
        return said
    size = format_bytes(abs(on.headroom_bytes))
    distance = phrase("fit.left", bytes=size) if on.headroom_bytes >= 0 else phrase("fit.missing", bytes=size)
    said = joined((said, distance), ", ")
    if not on.setting or on.setting_headroom_bytes is None:
        return said
    size = format_bytes(on.setting_headroom_bytes)
    return phrase(
        "fit.with" if on.outcome == FAILS else "fit.more", text=said, setting=quiet_conf(on.setting), bytes=size
    )


def quiet_conf(setting: str) -> str:
    """Returns settings with a space after each comma, so that lines can break there."""
    return setting.replace(",", ", ")


def largest(report: FitReport, device: int) -> list[FitCell]:
    """Returns the configurations that fit on a device while none that is larger on the growing axes fits."""
    fitting = report.fitting(device)
    return [cell for cell in fitting if not any(_is_larger(report, other, cell) for other in fitting)]


def _is_larger(report: FitReport, one: FitCell, other: FitCell) -> bool:
    if one is other:
        return False
    for axis, mine, its in zip(report.axes, one.values, other.values, strict=True):
        if axis.is_growing:
            if axis.values.index(mine) < axis.values.index(its):
                return False
        elif mine != its:
            return False
    return True


@dataclass(frozen=True)
class TableRow:
    """A row of the table: a configuration, or several that were inferred alike and differ on one growing axis only.

    Attributes:
        values: The values, in the order of the axes; "2 … 8" for several.
        cell: The configuration, or the first of several.
    """

    values: tuple[str, ...]
    cell: FitCell


def table_rows(report: FitReport) -> list[TableRow]:
    """Returns the rows of the table: lines of growing values one after the other, inferred neighbours together."""
    growing = [at for at, axis in enumerate(report.axes) if axis.is_growing]
    places = [{value: at for at, value in enumerate(axis.values)} for axis in report.axes]

    def order(cell: FitCell) -> tuple[list[int], list[int]]:
        at = [place[value] for place, value in zip(places, cell.values, strict=True)]
        return [each for place, each in enumerate(at) if place not in growing], [at[place] for place in growing]

    rows: list[TableRow] = []
    for cell in sorted(report.cells, key=order):
        if rows and growing and _is_like(rows[-1].cell, cell, growing[-1]):
            first = rows[-1].cell
            values = list(first.values)
            values[growing[-1]] = f"{first.values[growing[-1]]} … {cell.values[growing[-1]]}"
            rows[-1] = TableRow(tuple(values), first)
        else:
            rows.append(TableRow(cell.values, cell))
    return rows


def _is_like(one: FitCell, other: FitCell, place: int) -> bool:
    """Returns whether two configurations were inferred alike, and differ on the axis ``place`` only."""
    same = all(a == b for at, (a, b) in enumerate(zip(one.values, other.values, strict=True)) if at != place)
    return same and one.on == other.on and all(on.basis == INFERRED for on in one.on)


def peaks(cell: FitCell) -> tuple[str, str]:
    """Returns the allocated and the reserved peak of a configuration on the first device that it was run for."""
    ran = next((on for on in cell.on if on.basis == RUN), None)
    sizes = (None, None) if ran is None else (ran.peak_allocated_bytes, ran.peak_reserved_bytes)
    allocated, reserved = ("-" if size is None else format_bytes(size) for size in sizes)
    return allocated, reserved


def verdicts(report: FitReport) -> list[Phrase]:
    """Returns a sentence for each device, and one about the closest configuration if none fits."""
    said = []
    for number, device in enumerate(report.devices):
        fits, count = len(report.fitting(number)), len(report.cells)
        best = largest(report, number)
        if fits == count:
            said.append(phrase("fit.verdict.all", device=device.name, count=count))
        elif not fits:
            said.append(phrase("fit.verdict.none", device=device.name, count=count))
        else:
            names: list[str] = [report.label(cell.values) for cell in best[:_MOST_LARGEST]]
            names += ["…"] if len(best) > _MOST_LARGEST else []
            said.append(
                phrase("fit.verdict.some", device=device.name, fits=fits, count=count, largest=joined(names, "; "))
            )
    return said


def closest(report: FitReport) -> list[Phrase]:
    """Returns sentences about each device on which nothing fits: what is missing, and which change comes closest."""
    said = []
    for short in report.shortfalls:
        values, missing = report.label(short.values), format_bytes(short.missing_bytes)
        said.append(phrase("fit.closest", values=values, device=short.device, bytes=missing))
        if short.setting:
            said.append(phrase("fit.closest.setting", setting=short.setting))
        if short.larger_device:
            said.append(phrase("fit.closest.larger", device=short.larger_device))
        effects: list[Phrase] = [
            phrase(
                "fit.effect",
                lighter=f"{effect.name}={effect.lighter}",
                heavier=f"{effect.name}={effect.heavier}",
                bytes=format_bytes(effect.saved_bytes),
            )
            for effect in short.effects[:_MOST_EFFECTS]
        ]
        if effects:
            said.append(phrase("fit.closest.effects", effects=joined(effects, "; ")))
        elif not short.setting:
            said.append(phrase("fit.closest.next", values=values))
    return said


def front(report: FitReport) -> tuple[list[Phrase], list[list[str]]] | None:
    """Returns the head and the rows of the Pareto front; None: it has a single run on each kind of device."""
    points = report.front
    if len(points) <= len({point.device for point in points}):
        return None
    kinds = len({point.device for point in points}) > 1
    optional = {
        "ranks": any(point.ranks is not None for point in points),
        "at-once": any(point.at_once is not None for point in points),
        "passes": any(point.extra_forward_passes is not None for point in points),
    }
    head = [phrase("fit.front.kind")] if kinds else []
    head += [phrase("fit.front.card"), *(phrase(f"fit.front.{name}") for name, shown in optional.items() if shown)]
    rows = []
    for point in points:
        cells = {"ranks": point.ranks, "at-once": point.at_once, "passes": point.extra_forward_passes}
        shown = ["-" if cells[name] is None else f"{cells[name]:,g}" for name in optional if optional[name]]
        device = [point.device.partition(":")[0]] if kinds else []
        rows.append([*device, format_bytes(point.smallest_total_bytes), *shown, report.label(point.values)])
    return [*head, phrase("fit.front.values")], rows


def runs(report: FitReport) -> Phrase:
    """Returns how many runs the answer rests on."""
    inferred = sum(on.basis == INFERRED for cell in report.cells for on in cell.on)
    said = phrase(
        "fit.runs",
        cells=len(report.cells),
        devices=len(report.devices),
        runs=report.num_runs,
        reused=report.num_reused,
        inferred=inferred,
    )
    if not report.num_excluded:
        return said
    return joined((said, phrase("fit.excluded", count=report.num_excluded)), "; ")


def next_steps(report: FitReport) -> list[Phrase]:
    """Returns the commands that open the largest trace that fits, or the closest one that does not."""
    every = [on for cell in report.cells for on in cell.on if on.trace and on.headroom_bytes is not None]
    if not every:
        return []
    fitting = [on for on in every if on.outcome in {FITS, TIGHT}]
    chosen = min(fitting or every, key=lambda on: abs(on.headroom_bytes or 0))
    failing = min((on for on in every if on.outcome == FAILS), key=lambda on: -(on.headroom_bytes or 0), default=None)
    said = [phrase("fit.next.analyze", trace=chosen.trace)]
    if failing is not None:
        said.append(phrase("fit.next.tune", trace=failing.trace))
    return said
