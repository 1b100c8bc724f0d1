"""Offloading in a simulated run, for people: does it fit now, what moves, what it costs, how to do it."""

from __future__ import annotations

from memdiag.allocator.offload.told import Moved, Offloading
from memdiag.render.lightpage import LightPage
from memdiag.render.text import plain
from memdiag.units import format_bytes, format_count, format_us, plural

_LISTED = 8
LONGEST = 60


def offloading(page: LightPage, name: str, found: Offloading) -> None:
    """Adds the plan of the run called ``name`` to a page."""
    page.title(f"{name}: {found.strategy} offload")
    budget = "no limit" if found.budget_bytes is None else format_bytes(found.budget_bytes)
    if found.fits is None:
        said = f"in {budget} up to the failed allocation; the rest of the run is unknown"
        page.grid("lw", [[("PAST THE FAILURE", "yellow"), (said, "bold")]])
    elif found.fits:
        page.grid("lw", [[("FITS", "green"), (f"in {budget}" if found.budget_bytes is not None else "there is no limit", "bold")]])
    else:
        lacking = f": {format_bytes(found.missing_bytes)} more device memory is needed" if found.missing_bytes else ""
        page.grid("lw", [[("DOES NOT FIT", "bold red"), (f"in {budget}{lacking}", "bold")]])
        _why_not(page, found)
    page.gap()
    rows = [
        ("live at the peak", f"{format_bytes(found.load_left_bytes)} instead of {format_bytes(found.load_peak_bytes)}"),
        ("if all that is idle were away", f"{format_bytes(found.bound_bytes)} (copies taking no time: the least there can be)"),
        ("host", f"{format_bytes(found.host_peak_bytes)} held by the pinned pool, {format_bytes(found.host_used_bytes)} used"),
    ]
    if found.disk_peak_bytes:
        rows.append(("disk", format_bytes(found.disk_peak_bytes)))
    rows.append(("a step moves", f"{format_bytes(found.bytes_away)} away, {format_bytes(found.bytes_back)} back"))
    if found.hidden_us is not None and found.exposed_us is not None:
        rows.append(("copies a step", f"{format_us(found.hidden_us)} beside the program, {format_us(found.exposed_us)} waited for"))
    if found.step_us and found.new_step_us is not None:
        rows.append(("length of a step", f"{format_us(found.new_step_us)} instead of {format_us(found.step_us)}"))
    rows.append(("link, disk", f"{plain(found.link)}; {plain(found.disk)}"))
    page.grid("lw", [[(what, "dim"), said] for what, said in rows])
    _moves(page, found)
    for note in found.notes:
        page.text(f"{note[0].upper()}{note[1:]}.", "dim", indent=2)
    _alternatives(page, found)
    _how(page, found)


def _why_not(page: LightPage, found: Offloading) -> None:
    if found.budget_bytes is not None and found.bound_bytes > found.budget_bytes:
        page.text(
            "More than that is in use at one moment, so offloading alone cannot make it fit. Reduce the batch size, recompute or shard.",
            indent=2,
        )
    elif found.host_peak_bytes > found.host_budget_bytes:
        page.text(
            f"The plan needs {format_bytes(found.host_peak_bytes)} of host memory; {format_bytes(found.host_budget_bytes)} is allowed.",
            indent=2,
        )
    elif found.disk_peak_bytes > found.disk_budget_bytes:
        page.text(
            f"The plan needs {format_bytes(found.disk_peak_bytes)} of disk; {format_bytes(found.disk_budget_bytes)} is allowed.", indent=2
        )
    elif found.fits_with_host_bytes is not None:
        page.text(
            f"It fits with {format_bytes(found.fits_with_host_bytes)} of host memory (--offload-cpu-size); "
            f"{format_bytes(found.host_budget_bytes)} is allowed, and the disk cannot take the rest in time.",
            indent=2,
        )
    elif found.budget_bytes is not None and found.load_left_bytes <= found.budget_bytes:
        said = "What is live would fit, but not where the allocator puts it, and more cannot be moved in time. Try it with"
        page.text(f"{said} --conf expandable_segments:True, or --allow-exposed, with which the step waits.", indent=2)
    elif found.strategy == "forced":
        page.text("The automatic strategy (without auto_offload: false) may move what these settings leave there.", indent=2)
    else:
        page.text("The link cannot carry more in time; --allow-exposed moves more, and the step waits for it.", indent=2)


def _moves(page: LightPage, found: Offloading) -> None:
    if not found.moved:
        page.gap()
        page.text("Nothing moves.", indent=2)
        return
    page.gap()
    rows = [[(text, "bold") for text in ("what moves", "", "to", "goes in", "is back in", "times", "copied")]]
    rows += [[(cell, "") for cell in _cells(each)] for each in found.moved[:_LISTED]]
    page.grid("lwlllrr", rows)
    left = len(found.moved) - _LISTED
    if left > 0:
        page.text(f"and {plural(left, 'other kind')}; --json has all", "dim", indent=2)


def _cells(each: Moved) -> tuple[str, ...]:
    name = plain(each.name, LONGEST) or "(no name)"
    return each.category, name, each.place, each.away_in, each.back_in or "-", format_count(each.num_moves), format_bytes(each.bytes)


def _alternatives(page: LightPage, found: Offloading) -> None:
    if not found.recomputable:
        return
    page.gap()
    page.text("Or recompute: what forward has left for backward at the peak", "bold", indent=2)
    rows = [
        [plain(each.module or "(no name)", LONGEST), format_bytes(each.bytes), plural(each.num_tensors, "tensor")]
        for each in found.recomputable[:5]
    ]
    page.grid("wrr", rows, indent=4)


def _how(page: LightPage, found: Offloading) -> None:
    if not found.snippets:
        return
    page.gap()
    page.text("How to do it today", "bold", indent=2)
    for name, part, text in found.snippets:
        page.gap()
        page.text(f"{name}: {part}", indent=4)
        lines = text.splitlines()
        for line in lines[:3] if len(lines) > 12 else lines:
            page.paste(plain(line), indent=6)
        if len(lines) > 12:
            page.text("… (--json has the whole snippet)", "dim", indent=6)
