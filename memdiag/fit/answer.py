"""Puts the answer of a search together: each configuration on each device, and the notes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence

from memdiag.fit.accuracy import MARGIN, WORST_LOW_PERCENT
from memdiag.fit.best_settings import BestSetting, best_setting
from memdiag.fit.front import FrontRun, front_of
from memdiag.fit.grid import Cell, Grid
from memdiag.fit.kinds import kinds_of
from memdiag.fit.measure import Need, OnDevice
from memdiag.fit.order import FitOrder
from memdiag.fit.shortfall import shortfall_on
from memdiag.fit.worker import Worker
from memdiag.results.fit import (
    ERROR,
    FAILS,
    FITS,
    INFERRED,
    RUN,
    TIGHT,
    UNKNOWN,
    DeviceFit,
    FitCell,
    FitDevice,
    FitReport,
    RankPeak,
)
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

_LEAST_SECONDS = 2.0  # for one search for settings: shorter ones find little


def report_of(order: FitOrder, grid: Grid, searches: Sequence[Worker]) -> FitReport:
    """Returns the report of a search whose runs have ended."""
    places = {device.name: (worker, at) for worker in searches for at, device in enumerate(worker.kind.devices)}
    devices = tuple(places[name][0].kind.devices[places[name][1]] for name in _in_order(order, searches))
    settings = _settings(order, searches)
    cells = tuple(_cell(cell, devices, places, settings) for cell in grid.cells)
    shortfalls = (shortfall_on(at, device, grid.axes, cells) for at, device in enumerate(devices))
    ran = [each for worker in searches for each in worker.ran.values()]
    return FitReport(
        command=shlex.join([*(f"{name}={text}" for name, text in order.variables.items()), *order.command]),
        axes=grid.axes,
        devices=devices,
        cells=cells,
        front=front_of(grid.axes, _front_runs(grid, searches)),
        shortfalls=tuple(each for each in shortfalls if each is not None),
        num_excluded=grid.num_excluded,
        num_runs=len(ran),
        num_reused=sum(each.is_reused for each in ran),
        margin=MARGIN,
        notes=tuple(_notes(order, grid, searches)),
        folder=str(order.folder),
    )


def _in_order(order: FitOrder, searches: Sequence[Worker]) -> list[str]:
    """Returns the devices in the order in which they were given."""
    names = {device.name for worker in searches for device in worker.kind.devices}
    given = [name for text in order.devices for name in kinds_of((text,))[0].names]
    return [name for name in dict.fromkeys(given) if name in names]


def _settings(order: FitOrder, searches: Sequence[Worker]) -> dict[tuple[str, Cell], BestSetting]:
    """Returns allocator settings by device and configuration, the closest to the limit first until time is up."""
    wanted = []
    for worker in searches:
        for cell, ran in worker.ran.items():
            needs = ran.every
            for at, device in enumerate(worker.kind.devices if needs and not ran.error else ()):
                here = min((need.on[at] for need in needs), key=lambda on: on.headroom_bytes)
                # Settings change no tensor, so the allocated peak is a lower bound.
                can_fit = max(need.peak_allocated_bytes for need in needs) <= device.usable_bytes
                if can_fit and (not here.fits or _is_tight(here, needs)):
                    wanted.append((abs(here.headroom_bytes), worker, cell, at))
    ends = time.monotonic() + order.tune_seconds
    found = {}
    for _, worker, cell, at in sorted(wanted, key=lambda entry: (entry[0], entry[2], entry[3])):
        if (left := ends - time.monotonic()) <= 0:
            break
        device = worker.kind.devices[at]
        seconds = min(left, max(order.tune_seconds / len(wanted), _LEAST_SECONDS))
        found[device.name, cell] = best_setting(worker.ran[cell].every, at, device, worker.listener, seconds)
    return found


def _is_tight(here: OnDevice, needs: Sequence[Need]) -> bool:
    """Returns whether less is left than the safety margin and scratch memory that a card may use."""
    unknown = max(need.unknown_bytes for need in needs)
    return here.headroom_bytes < MARGIN * here.peak_reserved_bytes + unknown


def _front_runs(grid: Grid, searches: Sequence[Worker]) -> list[FrontRun]:
    runs = []
    for worker in searches:
        for cell, ran in worker.ran.items():
            smallest = [need.smallest_total_bytes for need in ran.every]
            known = [size for size in smallest if size is not None]
            if not ran.error and known and len(known) == len(smallest):
                values = tuple(grid.values(cell).values())
                runs.append(FrontRun(worker.kind.names[0], values, max(known), worker.world_of(cell)))
    return runs


def _cell(
    cell: Cell,
    devices: Sequence[FitDevice],
    places: Mapping[str, tuple[Worker, int]],
    settings: Mapping[tuple[str, Cell], BestSetting],
) -> FitCell:
    on = tuple(
        _on(cell, device, *places[device.name], settings.get((device.name, cell), BestSetting())) for device in devices
    )
    first = next(worker for worker, _ in places.values())
    every = [worker.ran[cell] for worker, _ in places.values() if cell in worker.ran]
    failed = next((ran for ran in every if ran.error), None)
    ranks = next((ran.needs for ran in every if ran.needs), {})
    return FitCell(
        tuple(first.grid.values(cell).values()),
        on,
        tuple(
            RankPeak(rank, need.peak_allocated_bytes, need.peak_reserved_bytes)
            for rank, needs in ranks.items()
            for need in needs
        ),
        failed.error if failed else "",
        failed.output if failed else "",
    )


def _on(cell: Cell, device: FitDevice, worker: Worker, at: int, setting: BestSetting) -> DeviceFit:
    decided = worker.search.decided(cell, at) or worker.search.bracketed(cell, at)
    if decided is None:
        return DeviceFit(device.name, UNKNOWN, ERROR)
    fits, *runs = decided
    if runs != [cell]:
        by = ", ".join(_differing(worker.grid, cell, run) for run in runs)
        return DeviceFit(device.name, FITS if fits else FAILS, INFERRED, decided_by=by)
    needs = worker.ran[cell].every
    rank, need = min(worker.ran[cell].processes, key=lambda entry: entry[1].on[at].headroom_bytes)
    here = need.on[at]
    smallest = [each.smallest_total_bytes for each in needs]
    return DeviceFit(
        device.name,
        FAILS if not fits else TIGHT if _is_tight(here, needs) else FITS,
        RUN,
        max(each.peak_allocated_bytes for each in needs),
        here.peak_reserved_bytes,
        here.headroom_bytes,
        max(each.unknown_bytes for each in needs),
        rank,
        None if None in smallest else max(size for size in smallest if size is not None),
        setting.conf,
        setting.headroom_bytes if setting.conf else None,
        trace=str(need.trace),
    )


def _differing(grid: Grid, cell: Cell, run: Cell) -> str:
    """Returns the values in which a run differs from a configuration."""
    axes = zip(grid.axes, cell, run, strict=True)
    return " ".join(f"{axis.name}={axis.values[there]}" for axis, here, there in axes if here != there)


def _notes(order: FitOrder, grid: Grid, searches: Sequence[Worker]) -> list[Phrase]:
    refuted = {at for worker in searches for at in worker.search.refuted}
    assumed = [axis for at, axis in enumerate(grid.axes) if at not in refuted and not order.is_exhaustive]
    growing = [axis.name for axis in assumed if axis.is_growing]
    shrinking = [axis.name for axis in assumed if axis.is_shrinking]
    said = [phrase("fit.note.exact"), phrase("fit.note.estimated")]
    said.append(phrase("fit.note.margin", percent=f"{100 * MARGIN:g}", worst=f"{WORST_LOW_PERCENT:g}"))
    if growing:
        said.append(phrase("fit.note.growing", names=joined(growing, ", ")))
    if shrinking:
        said.append(phrase("fit.note.shrinking", names=joined(shrinking, ", ")))
    if bracketed := _bracketed(grid, searches):
        said.append(phrase("fit.note.bracketed", names=joined(bracketed, ", ")))
    if refuted:
        names = joined([grid.axes[at].name for at in sorted(refuted)], ", ")
        said.append(phrase("fit.note.refuted", names=names))
    if order.world is not None:
        said.append(phrase("fit.note.ranks"))
    needs = [need for worker in searches for ran in worker.ran.values() for need in ran.every]
    if unknown := max((need.unknown_bytes for need in needs), default=0):
        said.append(phrase("fit.note.scratch", bytes=format_bytes(unknown)))
    error = max((need.calibration_error_bytes for need in needs), default=0)
    if error:
        said.append(phrase("fit.note.calibration", bytes=format_bytes(error)))
    if needs and max(need.num_steps for need in needs) < 2:
        said.append(phrase("fit.note.steps"))
    return said


def _bracketed(grid: Grid, searches: Sequence[Worker]) -> list[str]:
    """Returns the names of the axes on which outcomes were inferred from both sides."""
    found = {
        at
        for worker in searches
        for cell in grid.cells
        for device in range(len(worker.kind.devices))
        if not worker.search.decided(cell, device) and (both := worker.search.bracketed(cell, device))
        for at, axis in enumerate(grid.axes)
        if axis.is_bracketed and not both[1][at] == cell[at] == both[2][at]
    }
    return [grid.axes[at].name for at in sorted(found)]
