"""What ``memdiag fit`` is asked to do, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = "memdiag-fit"
TUNE_SECONDS = 60.0
LOCAL = "local"


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
        tune_seconds: Time limit for finding allocator settings where a run fails or has little headroom; 0: none are
            looked for.
        engine: Where the runs are made: "local", or the name of an engine of ``memdiag fleet``.
        address: Address of the engine's cluster.
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
    tune_seconds: float = TUNE_SECONDS
    engine: str = LOCAL
    address: str | None = None


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
