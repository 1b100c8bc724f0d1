"""Prediction and result of ``memdiag try`` as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag import vocabulary
from memdiag.render.record.terminal import row
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.outlook import estimate, past_failure
from memdiag.render.support.page import TerminalPage
from memdiag.results.tried import LastFailure, RankComparison, RankForecast, RunForecast, TryReport
from memdiag.text import Phrase, joined, phrase
from memdiag.units import format_bytes

_WIDTH = 80  # columns


def forecast(predicted: RunForecast) -> Iterator[str]:
    """Yields the command that will run, and its prediction."""
    yield f"memdiag: {phrase('try.again', command=predicted.command)}"
    folder, phantom = predicted.cwd, predicted.phantom
    yield row(phrase("try.in"), phrase("try.in.phantom", folder=folder, device=phantom) if phantom else folder)
    yield row(phrase("try.with"), f"{predicted.variable}={predicted.conf or phrase('try.with.nothing')}")
    for rank in predicted.ranks:
        for label, text in _rank(rank):
            yield row(label, phrase("try.rank", name=rank.name, text=text) if len(predicted.ranks) > 1 else text)


def _rank(rank: RankForecast) -> Iterator[tuple[str, str]]:
    fate = phrase("try.fails", count=rank.num_ooms) if rank.num_ooms else phrase("try.fits")
    fate = past_failure(rank.outlook) if rank.outlook.fits is None else fate
    peak, recorded = format_bytes(rank.peak_bytes), format_bytes(rank.recorded_bytes)
    yield phrase("try.predicted"), phrase("try.predicted.peak", peak=peak, recorded=recorded, fate=fate)
    if rank.outlook.estimate is not None:
        yield "", estimate(rank.outlook.estimate)
    yield "", rank.calibrated


def render(report: TryReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all forms have the same signature
    """Returns the outcome of the rerun, comparing prediction and measurement."""
    return "\n".join([*result(report), ""])


def result(report: TryReport) -> Iterator[str]:
    """Yields the outcome of the rerun, comparing prediction and measurement."""
    yield ""
    if not report.ranks:
        yield f"memdiag: {phrase('try.nothing')}"
        return
    several, settings = len(report.ranks) > 1, f"{report.variable}={report.conf}"
    for each in report.ranks:
        verdict = words(
            each.outcome, each.recorded_failure, each.measured_failure, each.whole_run_peak_bytes, report.exit_status
        )
        yield f"memdiag: {phrase('try.rank', name=each.name, text=verdict) if several else verdict}"
    for each in report.ranks:
        yield (
            f"memdiag: {phrase('try.compared.rank' if several else 'try.compared', name=each.name, settings=settings)}"
        )
        yield from _comparison(each)
    yield row(phrase("try.run"), phrase("try.run.ended", status=str(report.exit_status), folder=report.folder))


def words(
    outcome: str, before: LastFailure | None, failure: LastFailure | None, peak_bytes: int, status: int
) -> Phrase:
    """Returns the outcome of a rank as a sentence without its full stop.

    Args:
        outcome: As in ``RankComparison``.
        before: The last failed allocation of the recording, or None.
        failure: The last failed allocation of the new run, or None.
        peak_bytes: Reserved peak of the whole new run.
        status: Exit status of the command.
    """
    peak = format_bytes(peak_bytes)
    if outcome == "runs_to_its_end":
        return phrase("try.outcome.end.handled" if failure is not None else "try.outcome.end", peak=peak)
    if outcome == "ends_with_another_error" or failure is None:
        return phrase("try.outcome.other", status=str(status), peak=peak)
    facts: dict[str, object] = {"place": _place(failure), "bytes": format_bytes(failure.requested_bytes), "peak": peak}
    if outcome == "fails_earlier":
        return phrase("try.outcome.earlier", **facts)
    if outcome == "fails_at_the_same_allocation":
        return phrase("try.outcome.same", **facts)
    if before is None:
        return phrase("try.outcome.new", **facts)
    return phrase("try.outcome.later", count=failure.num_allocations - before.num_allocations, **facts)


def _place(failure: LastFailure) -> Phrase | str:
    """Returns the step and phase of a failed allocation, or "" if unknown."""
    phase = vocabulary.name("phase", failure.phase) if failure.phase else ""
    if failure.step >= 0:
        step = str(failure.step)
        return phrase("try.place.step.phase", step=step, phase=phase) if phase else phrase("try.place.step", step=step)
    return phrase("try.place.phase", phase=phase) if phase else ""


def _comparison(each: RankComparison) -> Iterator[str]:
    error = (
        "0 B"
        if not each.error_bytes
        else f"{'+' if each.error_bytes > 0 else '-'}{format_bytes(abs(each.error_bytes))}"
    )
    counts = (
        each.num_recorded_ooms,
        each.num_predicted_ooms,
        each.num_measured_ooms,
        each.num_predicted_ooms - each.num_measured_ooms,
    )
    page = TerminalPage(Look(width=_WIDTH))
    rows = [
        ["", *(phrase(f"try.head.{head}") for head in ("recorded", "predicted", "measured", "error"))],
        [
            phrase("simulate.row.peak"),
            *map(format_bytes, (each.recorded_peak_bytes, each.predicted_peak_bytes, each.measured_peak_bytes)),
            error,
        ],
        [phrase("try.failed"), *map(str, counts)],
    ]
    page.grid("lrrrr", rows)
    yield from page.finish().splitlines()
    yield f"  {each.calibration}"
    if each.num_shared_allocations < each.num_recorded_allocations:
        yield f"  {phrase('try.same.part', count=each.num_shared_allocations, recorded=each.num_recorded_allocations)}"
    else:
        yield f"  {phrase('try.same.all', count=each.num_shared_allocations)}"
    if each.num_measured_allocations > each.num_shared_allocations:
        failed = phrase("try.more.failed", count=each.whole_run_num_ooms) if each.whole_run_num_ooms else ""
        more = phrase(
            "try.more",
            count=each.num_measured_allocations - each.num_shared_allocations,
            peak=format_bytes(each.whole_run_peak_bytes),
        )
        yield f"  {joined((more, failed), ', ')}"
