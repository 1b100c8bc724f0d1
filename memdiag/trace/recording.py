"""The marks that a recorder wrote while the program ran, as they stand in the file; ``memdiag.trace.recorded`` places them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memdiag.trace.table import Array


@dataclass(frozen=True)
class Optimizer:
    """An optimizer that existed when a run failed in its first step.

    Attributes:
        name: Its class.
        parameter_bytes: Of its parameters on the device.
        num_states: Parameters that had a state by then.
        settings: Those of "amsgrad", "momentum" and "centered" that are on: each adds to the state.
    """

    name: str
    parameter_bytes: int
    num_states: int
    settings: frozenset[str]


@dataclass(frozen=True)
class Ended:
    """When and why a recording was written.

    Attributes:
        reason: "exit", "oom", "window", "every", "demand", "signal" or "ended by the program"; "": unknown.
        error: Class of the exception that ended the program; "": none did, or it is unknown.
        is_windowed: Only some steps were to be recorded.
        optimizers: Those that existed at a failure in the first step.
        phantom_device: The simulated device that it ran on; "": a real one, or unknown.
    """

    reason: str = ""
    error: str = ""
    is_windowed: bool = False
    optimizers: tuple[Optimizer, ...] = ()
    phantom_device: str = ""


@dataclass(frozen=True)
class Recorded:
    """Marks of one process.

    Attributes:
        names: What ``name`` columns (and the ``value`` of a mark of the program's own) refer to.
        marks: Columns time_ns, kind (phase, step, mark, look, oom), value, device, allocs, frees; -1 where unknown.
        modules: Columns time_ns, name (-1: none), device, allocs, frees: from here on that module's code ran.
        tensors: Columns device, addr, category, name, first, last: seen at every mark from ``first`` to ``last`` that is of the kind
            and value of ``first``.
        counts: Blocks handed out and given back on each device when the file was written.
        rank, world: Of the process, as its launcher said; None: it had none.
        ended: When and why it was written.
    """

    names: tuple[str, ...]
    marks: Mapping[str, Array]
    modules: Mapping[str, Array]
    tensors: Mapping[str, Array]
    counts: Mapping[int, tuple[int, int]]
    rank: int | None = None
    world: int | None = None
    ended: Ended = Ended()
