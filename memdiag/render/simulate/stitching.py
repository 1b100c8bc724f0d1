"""Stitching in a simulated run, for people: how large requests got their memory, and what that cost in calls of the driver."""

from __future__ import annotations

from memdiag.render.support.lightpage import Cell, LightPage
from memdiag.results.stitching import Stitching
from memdiag.text import joined, phrase
from memdiag.units import format_bytes, format_count


def stitching(page: LightPage, name: str, found: Stitching) -> None:
    """Adds what the run called ``name`` stitched to a page."""
    page.gap()
    limit = format_bytes(found.frag_limit_bytes)
    page.text(phrase("policies.stitch", name=name), "bold", indent=2)
    names = ("exact", "cut", "reused", "stitched", "new")
    counts = (found.num_exact, found.num_cut, found.num_reused, found.num_stitched, found.num_new)
    rows: list[list[Cell]] = [
        [phrase(f"policies.stitch.{word}"), format_count(count)] for word, count in zip(names, counts, strict=True)
    ]
    page.grid("lr", rows, indent=4)
    if found.num_stitched:
        sizes = {"limit": limit, "bytes": format_bytes(found.stitched_bytes)}
        page.text(phrase("policies.stitch.done", count=found.num_stitched, pieces=found.num_pieces, **sizes), indent=2)
    else:
        page.text(phrase("policies.stitch.nothing", limit=limit), indent=2)
    stitched = found.num_maps - found.num_created
    calls = phrase(
        "policies.stitch.calls", maps=found.num_maps, new=found.num_created, stitched=stitched, unmaps=found.num_unmaps
    )
    peak = found.peak_stitched_bytes
    page.text(joined((calls, phrase("policies.stitch.addresses", bytes=format_bytes(peak)) if peak else "")), indent=2)
