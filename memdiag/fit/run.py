"""Runs a search: makes the grid, runs the configurations that ``search`` chooses, and puts the answers together."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.fit.accuracy import MARGIN, WORST_LOW_PERCENT
from memdiag.fit.command import check_placeholders, filled, single_process
from memdiag.fit.expressions import Expression
from memdiag.fit.grid import Cell, Grid, make_grid, read_axes
from memdiag.fit.kinds import DeviceKind, kinds_of
from memdiag.fit.measure import Need, measure
from memdiag.fit.ranks import NEARLY_HEAVIEST, probing_ranks
from memdiag.fit.recordings import TRACES, Recorded, Recorder, RunOrder
from memdiag.fit.search import Outcome, Search
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
from memdiag.runs.listener import SILENT, Listener
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

FOLDER = "memdiag-fit"
BACKEND = "backend"  # a placeholder that needs no axis: cuda or npu


@dataclass(frozen=True)
class FitOrder:
    """A search.

    Attributes:
        command: Words of the command, with placeholders.
        devices: Devices, as ``--phantom`` takes them.
        grid: Axes, as ``memdiag.fit.grid.read_axes`` takes them.
        variables: Variables to set for the command, with placeholders in their values.
        where: Conditions that a configuration must meet.
        world: Number of ranks, as a number or an expression, or None to run the command as it is.
        ranks: Ranks to record, or None for the usual ones.
        growing: Placeholders whose larger values need at least as much memory, or None for those with usual names.
        shrinking: Placeholders whose larger or later values need at most as much memory, or None for those with usual
            names.
        is_exhaustive: Whether every configuration is run.
        jobs: Runs at a time, or None for as many as processors and memory allow.
        folder: Folder for the runs.
    """

    command: tuple[str, ...]
    devices: tuple[str, ...]
    grid: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    world: str | None = None
    ranks: tuple[int, ...] | None = None
    growing: tuple[str, ...] | None = None
    shrinking: tuple[str, ...] | None = None
    is_exhaustive: bool = False
    jobs: int | None = None
    folder: Path = Path(FOLDER)


@dataclass(frozen=True)
class FitProgress:
    """How far a search is.

    Attributes:
        num_done: Runs of configurations that have ended.
        num_left: Runs that are still needed at most.
        seconds_left: Estimated duration of those.
        text: The configuration that has just ended, and its outcome; "" if none has.
    """

    num_done: int
    num_left: int
    seconds_left: float
    text: str = ""


@dataclass
class _Ran:
    """A configuration that was run on one kind of device.

    Attributes:
        needs: What each process needs, by rank.
        error: The error that ended the command, or "".
        output: Its output.
        is_reused: Whether all its runs were kept from an earlier search.
    """

    needs: dict[int | None, list[Need]] = field(default_factory=dict)
    error: str = ""
    output: str = ""
    is_reused: bool = True

    @property
    def heaviest(self) -> tuple[int | None, Need]:
        """The rank and the process with the highest reserved peak."""
        every = [(rank, need) for rank, needs in self.needs.items() for need in needs]
        return max(every, key=lambda entry: entry[1].peak_reserved_bytes)

    def outcome(self, num_devices: int) -> Outcome:
        """Returns the outcome for the search."""
        if self.error or not self.needs:
            return Outcome()
        every = [need for needs in self.needs.values() for need in needs]
        fits = tuple(all(need.on[device].fits for need in every) for device in range(num_devices))
        return Outcome(self.heaviest[1].peak_reserved_bytes, fits)


def fit(
    order: FitOrder, listener: Listener = SILENT, on_progress: Callable[[FitProgress], None] | None = None
) -> FitReport:
    """Finds out which configurations of a command fit on which devices.

    Args:
        order: The search.
        listener: Receives progress of reading traces.
        on_progress: Called after each run.

    Returns:
        Every configuration on every device.

    Raises:
        MemdiagError: The grid, a device, a condition or a rank is invalid, or a run cannot be started.
    """
    grid = make_grid(read_axes(order.grid, order.growing, order.shrinking), order.where, order.world)
    check_placeholders(order.command, order.variables, grid.axes)
    kinds = kinds_of(order.devices)
    order.folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(order.folder, order.jobs)
    searches = [_Worker(order, grid, kind, recorder, listener, on_progress) for kind in kinds]
    try:
        for worker in searches:
            worker.work()
    finally:
        recorder.stop()
    return _report(order, grid, searches)


class _Worker:
    """The search on one kind of device."""

    def __init__(
        self,
        order: FitOrder,
        grid: Grid,
        kind: DeviceKind,
        recorder: Recorder,
        listener: Listener,
        on_progress: Callable[[FitProgress], None] | None,
    ) -> None:
        self.order, self.grid, self.kind, self.recorder, self.listener = order, grid, kind, recorder, listener
        self.on_progress = on_progress
        usable = tuple(device.usable_bytes for device in kind.devices)
        self.search = Search(grid, usable, order.is_exhaustive)
        self.ran: dict[Cell, _Ran] = {}
        self._heavy: dict[Cell, tuple[int, ...]] = {}
        self._world = None if order.world is None else Expression(order.world, frozenset(a.name for a in grid.axes))

    def work(self) -> None:
        """Runs configurations until each is decided on each device."""
        queue: list[tuple[Cell, int | None]] = []
        running: dict[Future[Recorded], tuple[Cell, int | None]] = {}
        left: dict[Cell, int] = {}
        while True:
            while len(running) < self.recorder.num_at_a_time:
                if not queue:
                    cell = self.search.next(tuple(left))
                    if cell is None:
                        break
                    ranks = self._ranks(cell)
                    left[cell] = len(ranks)
                    self.ran[cell] = _Ran()
                    queue += [(cell, rank) for rank in ranks]
                cell, rank = queue.pop(0)
                running[self.recorder.start(self._order_of(cell, rank))] = (cell, rank)
            if not running:
                return
            # Results count in the order of the starts: then the durations of runs do not change the choices.
            oldest = next(iter(running))
            cell, rank = running.pop(oldest)
            self._take(cell, rank, oldest.result())
            left[cell] -= 1
            if not left[cell]:
                del left[cell]
                self._finish(cell)

    def _ranks(self, cell: Cell) -> tuple[int | None, ...]:
        """Returns the ranks to record: all probed ones first, and then the heavy ones of the same line."""
        world = self._world_of(cell)
        if world is None:
            return (None,)
        return self._heavy.get(self.search.line_of(cell)) or probing_ranks(
            world, self.grid.values(cell), self.order.ranks
        )

    def _world_of(self, cell: Cell) -> int | None:
        if self._world is None:
            return None
        size = self._world.value(self.grid.values(cell))
        if not isinstance(size, int) or size < 1:
            raise MemdiagError(phrase("fit.error.world", world=str(size)), phrase("fit.error.world.hint"))
        return size

    def _order_of(self, cell: Cell, rank: int | None) -> RunOrder:
        values = {BACKEND: self.kind.backend, **self.grid.values(cell)}
        command = tuple(filled(word, values) for word in self.order.command)
        variables = {name: filled(text, values) for name, text in self.order.variables.items()}
        world = self._world_of(cell)
        return RunOrder(
            command if world is None else single_process(command), variables, self.kind.recorded_on, rank, world
        )

    def _take(self, cell: Cell, rank: int | None, run: Recorded) -> None:
        ran = self.ran[cell]
        ran.is_reused &= run.is_reused
        if run.status:
            ran.error, ran.output = run.error, str(run.output)
            return
        try:
            ran.needs[rank] = measure(run.folder / TRACES, self.kind.devices, self.listener)
        except MemdiagError as error:
            ran.error, ran.output = error.message, str(run.output)

    def _finish(self, cell: Cell) -> None:
        ran = self.ran[cell]
        self.search.outcomes[cell] = ran.outcome(len(self.kind.devices))
        if not ran.error and not self.order.is_exhaustive:
            most = ran.heaviest[1].peak_reserved_bytes
            heavy = tuple(
                rank
                for rank, needs in ran.needs.items()
                if rank is not None and max(need.peak_reserved_bytes for need in needs) >= NEARLY_HEAVIEST * most
            )
            self._heavy.setdefault(self.search.line_of(cell), heavy)
        if self.on_progress is not None:
            self.on_progress(self._progress(cell))

    def _progress(self, cell: Cell) -> FitProgress:
        recorder, num_left = self.recorder, self.search.num_left_at_most()
        each = sum(recorder.seconds) / len(recorder.seconds) if recorder.seconds else 0.0
        ran, values = self.ran[cell], " ".join(f"{name}={text}" for name, text in self.grid.values(cell).items())
        said = (
            phrase("fit.progress.error", values=values, error=ran.error)
            if ran.error
            else phrase("fit.progress.done", values=values, bytes=format_bytes(ran.heaviest[1].peak_reserved_bytes))
        )
        return FitProgress(len(self.search.outcomes), num_left, num_left * each / max(recorder.num_at_a_time, 1), said)


# ----------------------------------------------------------------------------------------------------------- the report


def _report(order: FitOrder, grid: Grid, searches: Sequence[_Worker]) -> FitReport:
    places = {device.name: (worker, at) for worker in searches for at, device in enumerate(worker.kind.devices)}
    devices = tuple(places[name][0].kind.devices[places[name][1]] for name in _in_order(order, searches))
    cells = tuple(_cell(cell, devices, places, searches[0]) for cell in grid.cells)
    ran = [each for worker in searches for each in worker.ran.values()]
    return FitReport(
        command=shlex.join([*(f"{name}={text}" for name, text in order.variables.items()), *order.command]),
        axes=grid.axes,
        devices=devices,
        cells=cells,
        num_excluded=grid.num_excluded,
        num_runs=len(ran),
        num_reused=sum(each.is_reused for each in ran),
        margin=MARGIN,
        notes=tuple(_notes(order, grid, searches)),
        folder=str(order.folder),
    )


def _in_order(order: FitOrder, searches: Sequence[_Worker]) -> list[str]:
    """Returns the devices in the order in which they were given."""
    names = {device.name for worker in searches for device in worker.kind.devices}
    given = [name for text in order.devices for name in kinds_of((text,))[0].names]
    return [name for name in dict.fromkeys(given) if name in names]


def _cell(
    cell: Cell, devices: Sequence[FitDevice], places: Mapping[str, tuple[_Worker, int]], first: _Worker
) -> FitCell:
    on = tuple(_on(cell, device, *places[device.name]) for device in devices)
    values = tuple(first.grid.values(cell).values())
    every = [worker.ran[cell] for worker, _ in places.values() if cell in worker.ran]
    failed = next((ran for ran in every if ran.error), None)
    ranks = next((ran.needs for ran in every if ran.needs), {})
    return FitCell(
        values,
        on,
        tuple(
            RankPeak(rank, need.peak_allocated_bytes, need.peak_reserved_bytes)
            for rank, needs in ranks.items()
            for need in needs
        ),
        failed.error if failed else "",
        failed.output if failed else "",
    )


def _on(cell: Cell, device: FitDevice, worker: _Worker, at: int) -> DeviceFit:
    decided = worker.search.decided(cell, at)
    if decided is None:
        return DeviceFit(device.name, UNKNOWN, ERROR)
    fits, by = decided
    if by != cell:
        differing = (
            f"{axis.name}={axis.values[there]}"
            for axis, here, there in zip(worker.grid.axes, cell, by, strict=True)
            if here != there
        )
        return DeviceFit(device.name, FITS if fits else FAILS, INFERRED, decided_by=" ".join(differing))
    ran = worker.ran[cell]
    every = [(rank, need) for rank, needs in ran.needs.items() for need in needs]
    rank, need = min(every, key=lambda entry: entry[1].on[at].headroom_bytes)
    here = need.on[at]
    smallest = [each.smallest_total_bytes for _, each in every]
    failing = [each.on[at] for _, each in every if not each.on[at].fits]
    settings = {each.setting for each in failing}
    unknown = max(each.unknown_bytes for _, each in every)
    is_tight = here.headroom_bytes < MARGIN * here.peak_reserved_bytes + unknown
    return DeviceFit(
        device.name,
        FAILS if not fits else TIGHT if is_tight else FITS,
        RUN,
        max(each.peak_allocated_bytes for _, each in every),
        here.peak_reserved_bytes,
        here.headroom_bytes,
        unknown,
        rank,
        None if None in smallest else max(size for size in smallest if size is not None),
        settings.pop() if len(settings) == 1 else "",
        trace=str(need.trace),
    )


def _notes(order: FitOrder, grid: Grid, searches: Sequence[_Worker]) -> list[Phrase]:
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
    if refuted:
        names = joined([grid.axes[at].name for at in sorted(refuted)], ", ")
        said.append(phrase("fit.note.refuted", names=names))
    if order.world is not None:
        said.append(phrase("fit.note.ranks"))
    needs = [need for worker in searches for ran in worker.ran.values() for each in ran.needs.values() for need in each]
    if unknown := max((need.unknown_bytes for need in needs), default=0):
        said.append(phrase("fit.note.scratch", bytes=format_bytes(unknown)))
    error = max((need.calibration_error_bytes for need in needs), default=0)
    if error:
        said.append(phrase("fit.note.calibration", bytes=format_bytes(error)))
    if needs and max(need.num_steps for need in needs) < 2:
        said.append(phrase("fit.note.steps"))
    return said
