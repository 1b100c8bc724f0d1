"""Engines: the places where the files of a fleet are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from memdiag.registry import Registry

if TYPE_CHECKING:
    from memdiag.fleet.work import Result, Task


class FleetEngine(Protocol):
    """A place where files are read."""

    workers: int

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """Yields number and result of each task as it completes."""

    def close(self) -> None:
        """Releases its resources."""


class EngineType(Protocol):
    """A kind of engine."""

    def __call__(self, workers: int | None = None, address: str | None = None) -> FleetEngine:
        """Returns an engine.

        Args:
            workers: Number of files to read at once, or None for the number of processors.
            address: Address of a cluster.
        """


FLEET_ENGINES: Registry[EngineType] = Registry(
    "engine",
    EngineType,
    {
        "local": "memdiag.fleet.local:Local",
        "ray": "memdiag.fleet.on_ray:OnRay",
    },
)
