"""Writes a reading to the loggers of trainings: TensorBoard's SummaryWriter, a run of Weights & Biases, or MLflow.

The logger is recognised by its methods, so memdiag imports none of these packages.
"""

from __future__ import annotations

from typing import Any

from memdiag.errors import MemdiagError
from memdiag.results.watch import WatchReading
from memdiag.text import phrase

from .gauges import gauges
from .here import reading


def log(logger: Any, step: int, now: WatchReading | None = None) -> dict[str, float]:
    """Writes the memory of this process to a logger; returns what was written.

    Args:
        logger: A ``SummaryWriter``, a ``wandb`` run (or the module ``wandb``), or the module ``mlflow``.
        step: The training step.
        now: A reading to write instead.

    Raises:
        MemdiagError: The logger has none of the known methods.
    """
    values = scalars(now or reading())
    if hasattr(logger, "add_scalar"):
        for name, value in values.items():
            logger.add_scalar(name, value, step)
    elif hasattr(logger, "log_metrics"):
        logger.log_metrics(values, step=step)
    elif hasattr(logger, "log"):
        logger.log(values, step=step)
    else:
        raise MemdiagError(phrase("watch.logger", kind=type(logger).__name__), phrase("watch.logger.hint"))
    return values


def scalars(now: WatchReading) -> dict[str, float]:
    """Returns the gauges by a name such as ``memdiag/cuda.0/reserved_bytes``; MLflow allows no colon."""
    found = {}
    for gauge in gauges(now):
        parts = [gauge.labels.get("device", "").replace(":", "."), gauge.name.removeprefix("memdiag_")]
        found["/".join(["memdiag", *(part for part in (*parts, gauge.labels.get("part", "")) if part)])] = gauge.value
    return found
