"""The result of ``memdiag fix`` for a terminal: outcome, remedies, then recorded, predicted and measured peaks."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.fix import FixAdvice, FixPeaks, FixRefusal, FixReport, FixStep
from memdiag.text import Phrase, joined, phrase, sentence
from memdiag.units import format_bytes, format_us

_ROUNDING = 0.01  # relative difference of losses in 16 bits that partial sums may cause


def render(report: FixReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    page.text(verdict(report), "bold")
    page.gap()
    for number, step in enumerate(report.chosen, 1):
        page.text(phrase("fix.step", number=str(number), text=step.text), "bold")
        page.grid("lw", list(_details(step)), indent=3)
    if len(report.chosen):
        page.gap()
    page.grid("lrrl", list(_peaks(report)), indent=0)
    others = [step for step in report.steps if not step.is_chosen]
    if others:
        page.title(phrase("fix.others"))
        page.grid("lw", [("-", _other(step)) for step in others])
    if report.refused:
        page.title(phrase("fix.refused"))
        page.grid("lw", [("-", _refused(each)) for each in report.refused])
    if report.advice:
        page.title(phrase("fix.advice"))
        page.grid("lw", [("-", _advice(each)) for each in report.advice])
    page.gap()
    page.grid("lw", [("-", sentence(note)) for note in _notes(report)], indent=0)
    return page.finish()


def verdict(report: FixReport) -> Phrase:
    """Returns the outcome in a sentence."""
    facts = {"budget": format_bytes(report.budget_bytes), "peak": format_bytes(report.recorded.reserved_bytes)}
    if report.recorded.fits:
        return phrase("fix.verdict.fits-already", **facts)
    if not report.chosen:
        return phrase("fix.verdict.none", **facts)
    if report.exit_status is None:
        facts["now"] = format_bytes(report.predicted.reserved_bytes)
        if report.predicted.fits:
            return phrase("fix.verdict.would-fit", count=len(report.chosen), **facts)
        return phrase("fix.verdict.would-not-fit", count=len(report.chosen), **facts)
    if report.actual is None:
        return phrase("fix.verdict.no-trace", status=str(report.exit_status))
    facts["now"] = format_bytes(report.actual.reserved_bytes)
    if report.actual.fits:
        return phrase("fix.verdict.fits", count=len(report.chosen), **facts)
    return phrase("fix.verdict.fails", count=len(report.chosen), **facts)


def _details(step: FixStep) -> Iterator[tuple[Cell, Cell]]:
    yield phrase("fix.where"), ", ".join(step.where) or phrase("fix.where.none")
    yield phrase("fix.alone"), _of(step.alone)
    if step.actual_alone is not None:
        yield phrase("fix.alone.actual"), _of(step.actual_alone)
    if step.extra_forward:
        yield phrase("fix.cost"), phrase("fix.cost.forward", share=f"{step.extra_forward:.0%}")
    if step.moved_bytes:
        size = format_bytes(step.moved_bytes)
        yield phrase("fix.cost"), phrase("fix.cost.copies", bytes=size, time=format_us(step.copy_us))
    if step.cost is not None:
        yield phrase("fix.cost"), step.cost
    if step.by_hand:
        yield phrase("fix.by-hand"), step.by_hand
    yield phrase("fix.caveat"), step.caveat


def _other(step: FixStep) -> Phrase:
    kind = "undone" if step.is_undone else "other" if step.is_safe else "unsafe"
    return phrase(f"fix.{kind}", text=step.text, peak=_of(step.alone))


def _refused(refusal: FixRefusal) -> Phrase:
    where = phrase("fix.refused.where", places=", ".join(refusal.where)) if refusal.where else ""
    return phrase("fix.refused.line", name=refusal.name, reason=refusal.reason, where=where, instead=refusal.instead)


def _advice(advice: FixAdvice) -> Phrase:
    kind = "line" if advice.change else "plain"
    return phrase(
        f"fix.advice.{kind}",
        title=advice.title,
        code=advice.code,
        fix=sentence(advice.fix),
        change=advice.change,
    )


def _of(peaks: FixPeaks) -> Phrase:
    return phrase("fix.peaks", reserved=format_bytes(peaks.reserved_bytes), allocated=_allocated(peaks))


def _allocated(peaks: FixPeaks) -> str:
    return "-" if peaks.allocated_bytes is None else format_bytes(peaks.allocated_bytes)


def _peaks(report: FixReport) -> Iterator[list[Cell]]:
    yield ["", phrase("fix.head.reserved"), phrase("fix.head.allocated"), ""]
    rows = (("recorded", report.recorded), ("predicted", report.predicted), ("actual", report.actual))
    for name, peaks in rows:
        if peaks is None or (name == "predicted" and not report.chosen):
            continue
        fits = phrase("fix.fits" if peaks.fits else "fix.fits-not")
        numbers = (format_bytes(peaks.reserved_bytes), _allocated(peaks))
        yield [phrase(f"fix.row.{name}"), *numbers, fits]


def _notes(report: FixReport) -> Iterator[Phrase]:
    if report.losses is not None and report.losses.largest_relative is not None:
        share = f"{report.losses.largest_relative:.1e}"
        yield phrase("fix.losses", count=report.losses.num_compared, share=share)
        if report.losses.largest_relative > _ROUNDING:
            is_safe = all(step.is_safe for step in report.chosen)
            yield phrase("fix.losses.seed" if is_safe else "fix.losses.unsafe")
        if report.times is not None:
            before, after = format_us(report.times.before_us), format_us(report.times.after_us)
            yield phrase("fix.times", before=before, after=after)
    elif report.exit_status is not None and report.device is not None:
        yield phrase("fix.losses.simulated")
    if report.outside_bytes:
        room = format_bytes(report.budget_bytes - report.outside_bytes)
        yield phrase("fix.outside", outside=format_bytes(report.outside_bytes), room=room)
    error = report.calibration_error_bytes
    if report.steps:
        known = phrase("fix.calibration", bytes=format_bytes(error or 0))
        yield phrase("fix.calibration.unknown") if error is None else known
    if report.written:
        yield phrase("fix.written", files=joined(report.written, ", "))
    elif report.chosen and report.command and (report.actual or report.predicted).fits:
        yield phrase("fix.write")
