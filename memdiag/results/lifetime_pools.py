"""The result of lifetime-segregated pools in a simulated run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool at one moment: its name, segments, and bytes held, handed out, and handed out to tensors that outlive their window."""

    pool: str
    num_segments: int
    reserved_bytes: int
    used_bytes: int
    surviving_bytes: int


@dataclass(frozen=True, slots=True)
class Misfiled:
    """Tensors in the wrong pool.

    Attributes:
        num, num_bytes: Over the whole replay; bytes of blocks.
        peak_bytes: Of those that were live at the peak of reserved bytes.
        cost_bytes: What they cost at that peak. Thought long: bytes of segments obtained for them that lie idle. Thought short: free bytes
            in segments of the short-lived that a survivor keeps.
    """

    num: int
    num_bytes: int
    peak_bytes: int
    cost_bytes: int


@dataclass(frozen=True, slots=True)
class LifetimePools:
    """How it went.

    Attributes:
        hooks: What counted as a forward call: "layer" or "stack".
        bases: What the marks rest on, for each of "setup", "forward", "step" and "optimizer".
        num_bytes: Bytes of all blocks handed out.
        thought_long_bytes: Those of tensors that were decided to be long-lived.
        thought_long_wrongly: Decided long-lived, but freed within the window in which they were made.
        thought_short_wrongly: Decided short-lived within a window, but still there when it ended.
        pools: The four pools at the peak of reserved bytes.
    """

    hooks: str
    bases: Mapping[str, str]
    num_bytes: int
    thought_long_bytes: int
    thought_long_wrongly: Misfiled
    thought_short_wrongly: Misfiled
    pools: tuple[PoolState, ...]
