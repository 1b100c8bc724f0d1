"""A program's own pools in a simulated run, for people: what each held, and where its scopes are."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.allocator.mempool_told import Mempools
from memdiag.render.lightpage import Cell, LightPage
from memdiag.units import format_bytes, format_count

_WHERE = {
    "weights": "the set-up of the model",
    "optimizer": "the first optimizer step",
    "layers": "forward calls of layers",
}
_NONE = "none"


def mempools(page: LightPage, name: str, found: Mempools) -> None:
    """Adds the pools of the run called ``name`` to a page."""
    page.gap()
    rows: list[Sequence[Cell]] = [[(f"{name}, pools at the peak", "bold"), "scopes", "reserved", "asked for"]]
    for pool in found.pools:
        scopes = format_count(pool.num_scopes) if pool.pool in _WHERE else ""
        shown = pool.pool if pool.num_pools == 1 or pool.pool not in _WHERE else f"{pool.pool}, {format_count(pool.num_pools)} pools"
        rows.append([shown, scopes, *map(format_bytes, (pool.reserved_bytes, pool.requested_bytes))])
    page.grid("lrrr", rows)
    known = [f"{_WHERE[pool]} ({basis})" for pool, basis in found.bases.items() if basis != _NONE]
    unknown = [_WHERE[pool] for pool, basis in found.bases.items() if basis == _NONE]
    said = f"Scopes around {', '.join(known)}" if known else "There are no scopes: nothing is known of the program"
    page.text(f"{said}{'; not seen: ' + ', '.join(unknown) if known and unknown else ''}.", "dim", indent=2)
