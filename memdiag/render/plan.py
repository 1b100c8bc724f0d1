"""A plan for people, in a terminal: does it fit and how good is it, then what it is compared with."""

from __future__ import annotations

from memdiag.allocator.plan.report import PlanReport
from memdiag.render.lightpage import Cell, LightPage
from memdiag.render.look import PLAIN, Look
from memdiag.render.text import plain
from memdiag.units import format_bytes, format_count, plural

LONGEST = 200  # characters of a path
_NAMES = {
    "first_fit_by_size": "first fit, largest first",
    "online_first_fit": "first fit, as they come",
    "online_best_fit": "best fit, as they come",
}
_ENDED = {
    "load": "no placement needs less",
    "proved": "no placement needs less: all lower ones were ruled out",
    "capacity": "it fits, which was what was asked for",
    "effort": "nothing more was left to be tried",
    "time": "the time was over: with more, or another --seed, it may become lower",
}


def render(report: PlanReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = LightPage(look)
    label, style, said = _verdict(report)
    page.grid("lw", [((label, style), (said, "bold"))], indent=0)
    page.text(f"{_ENDED[report.ended][0].upper()}{_ENDED[report.ended][1:]}.", indent=2)
    page.gap()
    rows: list[list[Cell]] = [_row("most live at once", report, report.load_bytes)]
    rows.append(_row("this plan", report, report.height_bytes))
    if report.load_bytes < report.bound_bytes < report.height_bytes:
        rows.insert(1, _row("proved to be needed", report, report.bound_bytes))
    rows += [_row(_NAMES[rival.name], report, rival.height_bytes) for rival in report.rivals]
    if report.recorded_bytes is not None:
        rows.append(_row("held by the recorded allocator", report, report.recorded_bytes))
    if report.capacity_bytes is not None:
        rows.append(_row("card", report, report.capacity_bytes))
        if report.outside_bytes:
            rows.append(_row("room for the allocator on it", report, report.room_bytes))
    page.grid("lrr", rows, indent=2)
    page.gap()
    for line in _notes(report):
        page.text(line, "dim")
    return page.finish()


def _verdict(report: PlanReport) -> tuple[str, str, str]:
    num = plural(report.num_buffers, "buffer")
    height = format_bytes(report.height_bytes)
    if report.fits:
        return "FITS", "green", f"{num} in {height}, of {format_bytes(report.room_bytes)}"
    if report.fits is None:
        return "PLANNED", "green", f"{num} in {height}, {report.ratio:.4f} times the most that is live at once"
    missing = format_bytes(report.height_bytes - (report.room_bytes or 0))
    if report.bound_bytes > (report.room_bytes or 0):
        return "CANNOT FIT", "red", f"{num} need {format_bytes(report.bound_bytes)} at least, however they are placed"
    return "DOES NOT FIT", "red", f"{num} in {height}: {missing} too much; whether a better plan exists is not known"


def _row(name: str, report: PlanReport, value: int | None) -> list[Cell]:
    share = "" if value is None or not report.load_bytes else f"{value / report.load_bytes:.4f} x"
    size = "not tried" if value is None else f"{format_bytes(value)} ({format_count(value)})"
    return [(name, ""), (size, ""), (share, "")]


def _notes(report: PlanReport) -> list[str]:
    source = plain(report.source, LONGEST)
    where = f"{source}, device {report.device}" if report.device is not None else f"{source}, lifetimes {report.ends}"
    found = f"aligned to {format_bytes(report.align)}; found by {report.method} in {report.seconds:.1f} s"
    lines = [f"{where}; {found}; checked: no two live buffers share a byte."]
    if report.capacity_bytes is not None and report.device is not None and report.outside_bytes is None:
        lines.append("What lies outside the allocator is not recorded, and nothing is assumed for it.")
    if report.num_empty:
        lines.append(f"{plural(report.num_empty, 'buffer')} of no bytes or no life lie at 0.")
    apart = [(report.before, "from before the trace"), (report.after, "that outlive it")]
    if named := " and ".join(f"{plural(num, 'tensor')} {words}" for num, words in apart if num):
        lines.append(f"{named} {'has a place' if report.before + report.after == 1 else 'have places'} too, as if it could be chosen.")
    return lines
