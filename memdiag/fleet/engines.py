"""Engines: where the files of a fleet are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from memdiag.registry import Registry

if TYPE_CHECKING:
    from memdiag.fleet.work import Result, Task


class Engine(Protocol):
    """Where files are read."""

    workers: int

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yields number and result of each task as it is done."""

    def close(self) -> None:
        """Lets go of what it holds."""


class EngineType(Protocol):
    """A kind of engine."""

    def __call__(self, workers: int | None = None, address: str | None = None) -> Engine:
        """Returns an engine.

        Args:
            workers: How many files are read at once; None: as many as there are processors.
            address: Of a cluster.
        """


FLEET_ENGINES: Registry[EngineType] = Registry(
    "engine",
    EngineType,
    {
        "local": "memdiag.fleet.local:Local",
        "ray": "memdiag.fleet.on_ray:OnRay",
    },
)
