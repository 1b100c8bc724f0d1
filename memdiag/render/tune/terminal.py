"""The result of a search for settings, for people: the line to paste with reasons, alternatives, the calibration."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.outlook import fate, meanings, name_of, on, saving, sentences
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.outlook import PAST_FAILURE
from memdiag.results.tune import Reason, Recommended, Tried, TunedTrace, TuneReport
from memdiag.text import Phrase, joined, phrase, plain, sentence
from memdiag.units import format_bytes, format_count

LONGEST = 200  # characters of settings
_NOTHING = "-"
_SAVED, _MOST_DROPPED = 2, 2  # the column that goes first in a narrow terminal, and how many follow it


def render(report: TuneReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    if report.recommended is None:
        page.grid(
            "lw", [((phrase("tune.keep"), "green"), (phrase("tune.keep.why", why=report.verdict), "bold"))], indent=0
        )
    else:
        page.grid("lw", [((phrase("tune.set"), "green"), (report.verdict, "bold"))], indent=0)
        page.paste(report.recommended.command, 2)
        for outlook in report.recommended.outlooks:
            for said in sentences(outlook):
                page.text(said, indent=2)
        _reasons(page, report, report.recommended)
        page.grid("lw", [("-", caveat) for caveat in report.recommended.caveats])
    page.gap()
    _front(page, report)
    page.gap()
    _calibration(page, report)
    page.gap()
    _words(page, report)
    return page.finish()


def _calibration(page: TerminalPage, report: TuneReport) -> None:
    for trace in report.traces:
        found = trace.calibration
        label, style, said = phrase("simulate.calibrated"), "yellow", phrase("simulate.uncalibrated.addresses")
        if found.num_exact is None:
            label = phrase("simulate.uncalibrated")
        else:
            style = "green" if found.is_exact else "yellow"
            said = phrase(
                f"tune.calibrated.{'exact' if found.is_exact else 'of'}", exact=found.num_exact, events=found.num_events
            )
            if not found.is_exact and found.calibration_error_bytes is not None:
                error = phrase("tune.calibrated.error", bytes=format_bytes(found.calibration_error_bytes))
                said = joined((said, error), "; ")
        if len(report.traces) > 1:
            said = phrase("tune.of_trace", path=plain(trace.path, LONGEST), text=said)
        page.grid("lw", [((label, style), said)], indent=0)
    for size in dict.fromkeys(_on(trace) for trace in report.traces):
        page.text(phrase("tune.replayed_on", card=size), "dim", indent=2)


def _on(trace: TunedTrace) -> Phrase:
    is_inferred = trace.card.capacity_bytes is None and trace.capacity_bytes == trace.card.usable_bytes
    return on(trace.capacity_bytes, trace.usable_bytes, is_card=not is_inferred)


def _reasons(page: TerminalPage, report: TuneReport, best: Recommended) -> None:
    if len(best.reasons) > 1:
        page.grid("lw", [((reason.setting, "cyan"), _reason(reason, best.tried)) for reason in best.reasons], indent=4)
    if len(report.traces) > 1:
        peaks = joined([format_bytes(peak) for peak in best.tried.score.peaks], ", ")
        page.text(phrase("tune.peaks", peaks=peaks), "dim", indent=2)


def _reason(reason: Reason, tried: Tried) -> Phrase:
    parts = []
    more = reason.without_peak_bytes - tried.score.peak
    if not reason.without_fits and not tried.score.num_failing:
        parts.append(phrase("tune.without.fails"))
    elif more:
        parts.append(phrase("tune.without.higher" if more > 0 else "tune.without.lower", bytes=format_bytes(abs(more))))
    if (retries := reason.without_retries - tried.score.num_retries) > 0:
        parts.append(phrase("tune.without.retries", count=retries))
    if (calls := reason.without_driver_calls - tried.score.num_driver_calls) > 0:
        parts.append(phrase("tune.without.calls", count=calls))
    return phrase("tune.without", what=joined(parts, ", ") if parts else phrase("tune.without.nothing"))


def _front(page: TerminalPage, report: TuneReport) -> None:
    page.text(phrase("tune.front.past_failure" if report.basis == PAST_FAILURE else "tune.front"))
    heads: list[Cell] = ["", *(phrase(f"tune.head.{head}") for head in ("peak", "saved", "retries", "calls", "runs"))]
    rows: list[Sequence[Cell]] = [heads]
    rows.append(
        _row(phrase("simulate.column.recorded"), Tried(report.baseline.conf, report.recorded, None), report.basis)
    )
    is_cached = report.recorded.peak != report.baseline.score.peak
    if is_cached:
        rows.append(_row(phrase("tune.replayed"), report.baseline, report.basis))
    names = []
    for number, tried in enumerate(report.front):
        is_best = report.recommended is not None and tried == report.recommended.tried
        names.append((name_of(number), "bold green" if is_best else "bold cyan"))
        rows.append(_row(names[-1], tried, report.basis))
    for _ in range(_MOST_DROPPED):
        # drop "saved" first, the difference of two rows, then "retries", which driver calls reflect
        if not page.has_room(rows):
            rows = [(*row[:_SAVED], *row[_SAVED + 1 :]) for row in rows]
    page.grid("l" + "r" * (len(rows[0]) - 2) + "l", rows)
    page.gap()
    legend: list[Sequence[Cell]] = [(phrase("simulate.column.recorded"), _settings(report.baseline))]
    legend += [(name, _settings(tried)) for name, tried in zip(names, report.front, strict=True)]
    page.grid("lw", legend)
    if report.recommended is not None and report.preferred_to is not None:
        best = name_of(report.front.index(report.recommended.tried))
        page.text(phrase("tune.front.shorter", best=best, other=name_of(report.preferred_to)))
    if is_cached:
        page.gap()
        page.text(phrase("tune.means.replayed"), indent=2)


def _row(name: Cell, tried: Tried, basis: str) -> Sequence[Cell]:
    score = tried.score
    return (
        name,
        format_bytes(score.peak),
        _NOTHING if tried.saved_bytes is None else saving(tried.saved_bytes),
        format_count(score.num_retries),
        format_count(score.num_driver_calls),
        fate(*score.fits(basis)),
    )


def _settings(tried: Tried) -> str:
    return plain(tried.conf, LONGEST) or phrase("tune.default")


def _words(page: TerminalPage, report: TuneReport) -> None:
    parts = [phrase("tune.tried", count=report.num_settings, seconds=f"{report.seconds:.1f}")]
    if report.num_stopped_early:
        parts.append(phrase("tune.cut_short", count=report.num_stopped_early))
    if not report.is_complete:
        parts.append(phrase("tune.incomplete"))
    page.text(joined(parts), "dim")
    for meaning in meanings([fate(*tried.score.fits(report.basis)) for tried in (report.baseline, *report.front)]):
        page.text(meaning, "dim")
    for note in dict.fromkeys(note for trace in report.traces for note in trace.card.notes):
        page.text(sentence(note), "dim")
    page.text(phrase("simulate.means.retries"), "dim")
