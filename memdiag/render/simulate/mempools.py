"""A program's own pools in a simulated run, for people: what each held, and where its scopes are."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.render.simulate.lifetimes import known_from
from memdiag.render.support.lightpage import Cell, LightPage
from memdiag.results.mempools import Mempools
from memdiag.text import phrase
from memdiag.units import format_bytes, format_count

_SCOPED = ("weights", "optimizer", "layers")


def mempools(page: LightPage, name: str, found: Mempools) -> None:
    """Adds the pools of the run called ``name`` to a page."""
    page.gap()
    heads = (phrase(f"policies.head.{head}") for head in ("scopes", "reserved", "requested"))
    rows: list[Sequence[Cell]] = [[(phrase("policies.pools", name=name), "bold"), *heads]]
    for pool in found.pools:
        is_scoped = pool.pool in _SCOPED
        scopes = format_count(pool.num_scopes) if is_scoped else ""
        shown = (
            phrase("policies.mempool", pool=pool.pool, count=pool.num_pools)
            if is_scoped and pool.num_pools > 1
            else pool.pool
        )
        rows.append([shown, scopes, *map(format_bytes, (pool.reserved_bytes, pool.requested_bytes))])
    page.grid("lrrr", rows)
    page.text(phrase("policies.scopes", known=known_from(found.bases)), "dim", indent=2)
