"""A placement plan for a terminal: whether it fits, its quality, and the comparison with other placements."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.plan import PlanReport
from memdiag.text import Phrase, joined, phrase, plain
from memdiag.units import format_bytes, format_count

LONGEST = 200  # characters of a path


def render(report: PlanReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    label, style, said = _verdict(report)
    page.grid("lw", [((phrase(f"plan.{label}"), style), (said, "bold"))], indent=0)
    page.text(phrase(f"plan.ended.{report.stop_reason}"), indent=2)
    page.gap()
    rows = [
        _row(phrase("plan.row.load"), report, report.live_peak_bytes),
        _row(phrase("plan.row.plan"), report, report.height_bytes),
    ]
    if report.live_peak_bytes < report.lower_bound_bytes < report.height_bytes:
        rows.insert(1, _row(phrase("plan.row.bound"), report, report.lower_bound_bytes))
    rows += [_row(phrase(f"plan.rival.{rival.name}"), report, rival.height_bytes) for rival in report.rivals]
    if report.recorded_peak_reserved_bytes is not None:
        rows.append(_row(phrase("plan.row.recorded"), report, report.recorded_peak_reserved_bytes))
    if report.capacity_bytes is not None:
        rows.append(_row(phrase("plan.row.card"), report, report.capacity_bytes))
        if report.outside_bytes:
            rows.append(_row(phrase("plan.row.room"), report, report.usable_bytes))
    page.grid("lrrr", rows if page.has_room(rows) else [(*row[:2], *row[3:]) for row in rows], indent=2)
    page.gap()
    for line in _notes(report):
        page.text(line, "dim")
    return page.finish()


def _verdict(report: PlanReport) -> tuple[str, str, Phrase]:
    count, height, room = report.num_buffers, format_bytes(report.height_bytes), report.usable_bytes or 0
    if report.fits:
        return "fits", "green", phrase("plan.fits.in", count=count, bytes=height, room=format_bytes(room))
    if report.fits is None:
        return "planned", "green", phrase("plan.planned.in", count=count, bytes=height, ratio=f"{report.ratio:.4f}")
    if report.lower_bound_bytes > room:
        return "cannot", "red", phrase("plan.cannot.in", count=count, bytes=format_bytes(report.lower_bound_bytes))
    return (
        "fails",
        "red",
        phrase("plan.fails.in", count=count, bytes=height, missing=format_bytes(report.height_bytes - room)),
    )


def _row(name: str, report: PlanReport, value: int | None) -> tuple[Cell, ...]:
    """Returns a size in two units and as a multiple of the peak of live bytes."""
    if value is None:
        return name, phrase("plan.untried"), "", ""
    share = f"{value / report.live_peak_bytes:.4f} x" if report.live_peak_bytes else ""
    return name, format_bytes(value), f"({format_count(value)})", share


def _notes(report: PlanReport) -> list[Phrase]:
    source = plain(report.path, LONGEST)
    if report.device is not None:
        where = phrase("plan.source.device", source=source, device=str(report.device))
    else:
        where = phrase("plan.source.list", source=source, ends=report.interval_ends)
    method, seconds = report.method, f"{report.seconds:.1f}"
    lines = [
        phrase("plan.found", where=where, align=format_bytes(report.alignment_bytes), method=method, seconds=seconds)
    ]
    if report.capacity_bytes is not None and report.device is not None and report.outside_bytes is None:
        lines.append(phrase("plan.outside"))
    if report.num_empty:
        lines.append(phrase("plan.empty", count=report.num_empty))
    before = phrase("plan.before", count=report.before) if report.before else ""
    after = phrase("plan.after", count=report.after) if report.after else ""
    if before or after:
        lines.append(phrase("plan.apart", what=joined((before, after), phrase("plan.and"))))
    return lines
