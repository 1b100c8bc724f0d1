"""Runs a search from the order to the report: ``fit``."""

from __future__ import annotations

from collections.abc import Callable

from memdiag.fit.answer import report_of
from memdiag.fit.command import check_placeholders
from memdiag.fit.grid import make_grid, read_axes
from memdiag.fit.kinds import kinds_of
from memdiag.fit.order import LOCAL, FitOrder, FitProgress
from memdiag.fit.recordings import Recorder
from memdiag.fit.worker import Worker
from memdiag.fleet.engines import FLEET_ENGINES
from memdiag.results.fit import FitReport
from memdiag.runs.listener import SILENT, Listener


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
    engine = None if order.engine == LOCAL else FLEET_ENGINES[order.engine](order.jobs, order.address)
    recorder = Recorder(order.folder, order.jobs, engine)
    try:
        searches = [Worker(order, grid, kind, recorder, listener, on_progress) for kind in kinds]
        for worker in searches:
            worker.work()
    finally:
        recorder.stop()
    return report_of(order, grid, searches)
