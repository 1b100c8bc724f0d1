"""Pools by lifetime in a simulated run, for people: what each pool held, what was misfiled, and what was known of the program."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.allocator.lifecycle.told import LifetimePools, Misfiled
from memdiag.render.lightpage import Cell, LightPage
from memdiag.units import format_bytes, plural

_HOOKED = {"layer": "calls of each layer", "stack": "calls of the whole stack of layers"}
_NONE = "none"


def lifetimes(page: LightPage, name: str, found: LifetimePools) -> None:
    """Adds the pools of the run called ``name`` to a page."""
    page.gap()
    rows: list[Sequence[Cell]] = [[(f"{name}, pools at the peak", "bold"), "segments", "reserved", "used", "outlives its window"]]
    rows += [
        [pool.pool, str(pool.num_segments), *map(format_bytes, (pool.reserved_bytes, pool.used_bytes, pool.surviving_bytes))]
        for pool in found.pools
    ]
    page.grid("lrrrr", rows)
    share = found.thought_long_bytes / found.num_bytes if found.num_bytes else 0.0
    page.text(f"Taken for long-lived: {share:.0%} of all bytes handed out ({format_bytes(found.thought_long_bytes)}).", indent=2)
    for misfiled, what, cost in (
        (found.thought_long_wrongly, "wrongly taken for long-lived", "idle in segments made for them"),
        (found.thought_short_wrongly, "wrongly taken for short-lived", "free beside them in segments that they keep"),
    ):
        page.text(_misfiled(misfiled, what, cost), indent=2)
    known = [f"{what} from {basis}" for what, basis in found.bases.items() if basis != _NONE]
    unknown = [what for what, basis in found.bases.items() if basis == _NONE]
    said = f"Hooks around {_HOOKED.get(found.hooks, found.hooks)}: " + (", ".join(known) or "nothing is known of the program")
    if unknown:
        said += f"; not seen: {', '.join(unknown)}"
    page.text(f"{said}.", "dim", indent=2)


def _misfiled(found: Misfiled, what: str, cost: str) -> str:
    said = f"{plural(found.num, 'tensor')} ({format_bytes(found.num_bytes)}) {what}"
    return f"{said}; at the peak that costs {format_bytes(found.cost_bytes)} {cost}." if found.num else f"{said}."
