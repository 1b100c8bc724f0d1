"""The search on one kind of device: starts the runs that ``search`` chooses, and measures them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from memdiag.errors import MemdiagError
from memdiag.fit.command import filled, single_process
from memdiag.fit.expressions import Expression
from memdiag.fit.grid import Cell, Grid
from memdiag.fit.kinds import DeviceKind
from memdiag.fit.measure import Need, measure
from memdiag.fit.order import FitOrder, FitProgress
from memdiag.fit.ranks import NEARLY_HEAVIEST, probing_ranks
from memdiag.fit.recordings import TRACES, Recorded, Recorder, RunOrder
from memdiag.fit.search import FitSearch, RunOutcome
from memdiag.phantom.experts import assumed_counts
from memdiag.runs.listener import Listener
from memdiag.text import phrase
from memdiag.units import format_bytes

BACKEND = "backend"  # a placeholder that needs no axis: cuda or npu


@dataclass
class Ran:
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
        return max(self.processes, key=lambda entry: entry[1].peak_reserved_bytes)

    @property
    def processes(self) -> list[tuple[int | None, Need]]:
        """Each process with its rank."""
        return [(rank, need) for rank, needs in self.needs.items() for need in needs]

    @property
    def every(self) -> list[Need]:
        """What each process needs."""
        return [need for _, need in self.processes]

    def outcome(self, num_devices: int) -> RunOutcome:
        """Returns the outcome for the search."""
        if self.error or not self.needs:
            return RunOutcome()
        fits = tuple(all(need.on[device].fits for need in self.every) for device in range(num_devices))
        return RunOutcome(self.heaviest[1].peak_reserved_bytes, fits)


class Worker:
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
        self.search = FitSearch(grid, usable, order.is_exhaustive)
        self.ran: dict[Cell, Ran] = {}
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
                    self.ran[cell] = Ran()
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
        world = self.world_of(cell)
        if world is None:
            return (None,)
        return self._heavy.get(self.search.line_of(cell)) or probing_ranks(
            world, self.grid.values(cell), self.order.ranks, assumed_counts(self.order.variables)
        )

    def world_of(self, cell: Cell) -> int | None:
        """Returns the number of ranks of a configuration, or None without ``--world``."""
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
        world = self.world_of(cell)
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
