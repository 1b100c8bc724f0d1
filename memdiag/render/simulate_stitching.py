"""Stitching in a simulated run, for people: how large requests got their memory, and what that cost in calls of the driver."""

from __future__ import annotations

from memdiag.allocator.stitch.told import Stitching
from memdiag.render.lightpage import Cell, LightPage
from memdiag.units import format_bytes, format_count, plural


def stitching(page: LightPage, name: str, found: Stitching) -> None:
    """Adds what the run called ``name`` stitched to a page."""
    page.gap()
    limit = format_bytes(found.frag_limit_bytes)
    page.text(f"{name}, large requests", "bold", indent=2)
    names = ("one free block", "cut from one", "stitched again", "stitched", "new memory")
    counts = (found.num_exact, found.num_cut, found.num_reused, found.num_stitched, found.num_new)
    rows: list[list[Cell]] = [[word, format_count(count)] for word, count in zip(names, counts, strict=True)]
    page.grid("lr", rows, indent=4)
    if not found.num_stitched:
        page.text(f"Nothing was stitched (fragLimit: requests below {limit} never are).", indent=2)
    else:
        said = (
            f"{plural(found.num_stitched, 'request')} of {limit} or more ({format_bytes(found.stitched_bytes)}) got free blocks mapped side"
        )
        page.text(f"{said} by side, at most {plural(found.num_pieces, 'piece')} for one tensor.", indent=2)
    stitched = found.num_maps - found.num_created
    said = f"{plural(found.num_maps, 'call')} to map a chunk of 2 MiB: {format_count(found.num_created)} for new memory, "
    said += f"{format_count(stitched)} to stitch; {format_count(found.num_unmaps)} to unmap."
    if found.peak_stitched_bytes:
        said += f" Stitched blocks took up to {format_bytes(found.peak_stitched_bytes)} of addresses."
    page.text(said, indent=2)
