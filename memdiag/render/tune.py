"""The result of a search for settings, for people: how exact the model is, the line to paste with its reasons, and what else there is."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.allocator.tuned import Reason, Recommended, Tried, TunedTrace, TuneReport
from memdiag.render.lightpage import Cell, LightPage
from memdiag.render.look import PLAIN, Look
from memdiag.render.outlook import fate, meanings, sentences
from memdiag.render.simulate import name_of, on
from memdiag.render.text import plain
from memdiag.units import format_bytes, format_count, plural

LONGEST = 200  # characters of settings
_NOTHING = "-"
_REPLAYED = (
    "replayed: the recorded settings, without the memory that was cached before the recording began. Savings are measured from this row, "
    "since every other row begins without that memory too."
)


def render(report: TuneReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = LightPage(look)
    _calibration(page, report)
    page.gap()
    if report.recommended is None:
        page.grid("lw", [(("KEEP", "green"), (f"the recorded settings: {report.verdict}", "bold"))], indent=0)
    else:
        page.grid("lw", [(("SET", "green"), (report.verdict, "bold"))], indent=0)
        page.paste(report.recommended.line, 2)
        for outlook in report.recommended.outlooks:
            for sentence in sentences(outlook):
                page.text(sentence, indent=2)
        _reasons(page, report, report.recommended)
    page.gap()
    _front(page, report)
    if report.recommended is not None:
        page.gap()
        for caveat in report.recommended.caveats:
            page.text(f"- {caveat}", indent=2)
    page.gap()
    _words(page, report)
    return page.finish()


def _calibration(page: LightPage, report: TuneReport) -> None:
    for trace in report.traces:
        found = trace.calibration
        where = f"{plain(trace.path, LONGEST)}: " if len(report.traces) > 1 else ""
        if found.exact is None:
            page.grid("lw", [(("NOT CALIBRATED", "yellow"), f"{where}no addresses were recorded to compare the model with")], indent=0)
            continue
        of = f"{format_count(found.exact)} of {format_count(found.events)} recorded addresses and segment events"
        style, said = ("green", f"exact: {of}") if found.is_exact else ("yellow", of)
        if not found.is_exact and found.what_if_error_bytes is not None:
            said += f"; reserved bytes are off by {format_bytes(found.what_if_error_bytes)} at most"
        page.grid("lw", [(("CALIBRATED", style), where + said)], indent=0)
    for size in dict.fromkeys(_on(trace) for trace in report.traces):
        page.text(f"Replayed on: {size}.", "dim", indent=2)


def _on(trace: TunedTrace) -> str:
    is_inferred = trace.card.capacity_bytes is None and trace.capacity_bytes == trace.card.room_bytes
    return on(trace.capacity_bytes, trace.room_bytes, is_card=not is_inferred)


def _reasons(page: LightPage, report: TuneReport, best: Recommended) -> None:
    if len(best.reasons) > 1:
        page.grid("lw", [((reason.setting, "cyan"), _reason(reason, best.tried)) for reason in best.reasons], indent=4)
    if len(report.traces) > 1:
        peaks = ", ".join(format_bytes(peak) for peak in best.tried.score.peaks)
        page.text(f"Peaks of the traces, in order: {peaks}.", "dim", indent=2)


def _reason(reason: Reason, tried: Tried) -> str:
    parts = []
    more = reason.without_peak_bytes - tried.score.peak
    if not reason.without_fits and not tried.score.num_failing:
        parts.append("a request would fail")
    elif more:
        parts.append(f"the peak would be {format_bytes(abs(more))} {'higher' if more > 0 else 'lower'}")
    if (retries := reason.without_retries - tried.score.num_retries) > 0:
        parts.append(f"{plural(retries, 'retry', 'retries')} more")
    if (calls := reason.without_driver_calls - tried.score.num_driver_calls) > 0:
        parts.append(f"{plural(calls, 'driver call')} more")
    return "without it " + (", ".join(parts) if parts else "nothing would change")


def _front(page: LightPage, report: TuneReport) -> None:
    page.text("What nothing else beats in memory, retries and driver calls at once:")
    rows: list[Sequence[Cell]] = [("", "peak reserved", "saved", "retries", "driver calls", "runs")]
    rows.append(_row("recorded", Tried(report.baseline.conf, report.recorded, None), report.basis))
    is_cached = report.recorded.peak != report.baseline.score.peak
    if is_cached:
        rows.append(_row("replayed", report.baseline, report.basis))
    names = []
    for number, tried in enumerate(report.front):
        is_best = report.recommended is not None and tried == report.recommended.tried
        names.append((name_of(number), "bold green" if is_best else "bold cyan"))
        rows.append(_row(names[-1], tried, report.basis))
    page.grid("lrrrrl", rows)
    page.gap()
    legend: list[Sequence[Cell]] = [("recorded", _settings(report.baseline))]
    legend += [(name, _settings(tried)) for name, tried in zip(names, report.front, strict=True)]
    page.grid("lw", legend)
    if is_cached:
        page.gap()
        page.text(_REPLAYED, indent=2)


def _row(name: Cell, tried: Tried, basis: str) -> Sequence[Cell]:
    score = tried.score
    return (
        name,
        format_bytes(score.peak),
        _saved(tried.saved_bytes),
        format_count(score.num_retries),
        format_count(score.num_driver_calls),
        fate(*score.fits(basis)),
    )


def _settings(tried: Tried) -> str:
    return plain(tried.conf, LONGEST) or "default settings"


def _saved(saved: int | None) -> str:
    if saved is None:
        return _NOTHING
    return format_bytes(saved) if saved >= 0 else f"{format_bytes(-saved)} more"


def _words(page: LightPage, report: TuneReport) -> None:
    tried = f"{plural(report.num_choices, 'setting')} replayed in {report.seconds:.1f} s"
    if report.num_cut_short:
        tried += f", {format_count(report.num_cut_short)} of them given up where they were worse already"
    if not report.is_complete:
        tried += "; the time was over first (--budget-seconds gives more)"
    page.text(f"{tried}.", "dim")
    fates = [fate(*tried.score.fits(report.basis)) for tried in (report.baseline, *report.front)]
    for meaning in meanings(fates):
        page.text(meaning, "dim")
    for note in dict.fromkeys(note for trace in report.traces for note in trace.card.notes):
        page.text(f"{note[0].upper()}{note[1:]}.", "dim")
    page.text("retries: requests for which all cached memory had to be given back first; each stops the device", "dim")
