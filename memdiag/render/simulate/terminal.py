"""Simulated runs for a terminal: the answer, then one column per run, the recorded one first, then the calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memdiag.render.simulate.advice import advice
from memdiag.render.simulate.answer import answer, share_of
from memdiag.render.simulate.details import add_rows
from memdiag.render.simulate.split import split_meanings, split_rows
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.outlook import fate, meanings, name_of, on, past_failure, saving, sentences
from memdiag.render.support.page import Cell, TerminalPage
from memdiag.results.prediction import CalibrationReport, FirstOom, Prediction, PredictionReport, RecordedRun
from memdiag.text import Phrase, joined, phrase, plain, sentence
from memdiag.units import format_bytes, format_count

LONGEST = 200  # characters of settings
_NOTHING = "-"


def render(report: PredictionReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    page.text(answer(report, [name_of(number) for number in range(len(report.results))]), "bold")
    _legend(page, report)
    _tables(page, report)
    for number, result in enumerate(report.results):
        for detail in result.details:
            add_rows(page, detail.rows(name_of(number)))
    _failures(page, report)
    _unknown(page, report)
    if report.advice is not None:
        advice(page, report.advice)
    page.gap()
    _calibration(page, report)
    _words(page, report)
    return page.finish()


def _calibration(page: TerminalPage, report: PredictionReport) -> None:
    found = report.calibration
    label, style, said = _verdict(found)
    page.grid("lw", [((label, style), said)], indent=0)
    first = found.first_divergence
    if first is not None:
        different = {
            "event": first.at_event,
            "recorded": first.recorded,
            "simulated": first.replayed,
            "cause": first.cause,
        }
        page.text(phrase("simulate.divergence", **different), indent=2)
        if found.calibration_error_bytes is not None:
            page.text(phrase("simulate.divergence.error", bytes=format_bytes(found.calibration_error_bytes)), indent=2)
    for note in (*found.notes, *(report.card.notes if report.with_min_capacity or _has_card(report) else ())):
        page.text(sentence(note), "dim", indent=2)


def _has_card(report: PredictionReport) -> bool:
    return any(result.capacity_bytes is not None for result in report.results)


def _verdict(found: CalibrationReport) -> tuple[Phrase, str, Phrase]:
    uncalibrated = phrase("simulate.uncalibrated")
    if found.num_exact is None:
        return uncalibrated, "yellow", phrase("simulate.uncalibrated.addresses")
    if not found.num_events:
        return uncalibrated, "yellow", phrase("simulate.uncalibrated.events")
    share = phrase("simulate.calibrated.exact") if found.is_exact else share_of(found.exact_fraction or 0.0)
    said = phrase("simulate.calibrated.of", share=share, exact=found.num_exact, events=found.num_events)
    return phrase("simulate.calibrated"), "green" if found.is_exact else "yellow", said


def _legend(page: TerminalPage, report: PredictionReport) -> None:
    page.gap()
    recorded = joined((_settings(report.recorded.policy, report.recorded.conf), _card(report)), ", ")
    rows: list[Sequence[Cell]] = [((phrase("simulate.column.recorded"), "bold"), recorded)]
    for number, result in enumerate(report.results):
        is_card = report.is_capacity_known or result.capacity_bytes != report.capacity_bytes
        unit = "torch_npu" if result.policy.startswith("npu") else "torch"
        is_same = result.is_recorded and report.recorded.conf is not None
        parts = (
            _settings(result.policy, result.conf),
            f"{unit} {plain(result.torch_version)}",
            on(result.capacity_bytes, result.usable_bytes, is_card=is_card),
            phrase("simulate.recorded") if is_same else "",
            phrase("simulate.model.mark") if result.standing == "uncalibrated" else "",
        )
        rows.append(((name_of(number), "bold cyan"), joined(parts, ", ")))
    page.grid("lw", rows)


def _card(report: PredictionReport) -> Phrase | str:
    if report.capacity_bytes is None:
        return ""
    if not report.is_capacity_known:
        return phrase("simulate.on.at_most", bytes=format_bytes(report.capacity_bytes))
    return on(report.capacity_bytes, report.card.usable_bytes)


def _settings(policy: str, conf: str | None) -> Phrase:
    if conf is None:
        return phrase("simulate.settings.unknown", policy=policy)
    if conf:
        return phrase("simulate.settings", policy=policy, conf=plain(conf, LONGEST))
    return phrase("simulate.settings.default", policy=policy)


Value = Callable[[Prediction], str]


def _tables(page: TerminalPage, report: PredictionReport) -> None:
    """Adds a table of the runs, as many as fit side by side; others follow below."""
    first = 0
    while first < len(report.results):
        count = len(report.results) - first
        while count > 1 and not page.has_room(_rows(report, first, count)):
            count -= 1
        page.gap()
        page.grid("l" + "r" * (count + 1), _rows(report, first, count))
        first += count


def _rows(report: PredictionReport, first: int, count: int) -> list[list[Cell]]:
    results = report.results[first : first + count]
    recorded = report.recorded
    rows: list[list[Cell]] = [
        [
            "",
            (phrase("simulate.column.recorded"), "bold"),
            *((name_of(first + n), "bold cyan") for n in range(len(results))),
        ]
    ]

    def add(what: str, then: str, now: Value, style: str = "") -> None:
        rows.append([what, then, *((now(result), style) for result in results)])

    add(
        phrase("simulate.row.peak"),
        _bytes(recorded.peak_reserved_bytes),
        lambda r: format_bytes(r.peak_reserved_bytes),
        "bold",
    )
    add(phrase("simulate.row.saved"), "", _saved)
    if any(result.calibration_error_bytes for result in results):
        add(
            phrase("simulate.row.error"),
            "",
            lambda r: _NOTHING if r.saved_bytes is None else format_bytes(r.calibration_error_bytes),
        )
    rows += split_rows([recorded, *results])
    add(phrase("simulate.row.retries"), _count(recorded.num_retries), lambda r: format_count(r.num_retries))
    add(phrase("simulate.row.releases"), "", lambda r: format_count(r.num_release_cycles))
    if any(result.device_allocs_per_step is not None for result in results):
        add(
            phrase("simulate.row.calls.step"),
            _rate(recorded.device_allocs_per_step),
            lambda r: _rate(r.device_allocs_per_step),
        )
    else:
        add(
            phrase("simulate.row.calls"),
            _count(recorded.num_device_allocs),
            lambda r: format_count(r.num_device_allocs),
        )
    add(phrase("simulate.row.runs"), _ran(recorded), fate_of)
    if report.with_min_capacity:
        add(phrase("simulate.row.smallest"), "", lambda r: _least(r, r.min_capacity_bytes), "bold")
        if any(result.min_usable_bytes != result.min_capacity_bytes for result in results):
            add(phrase("simulate.row.room"), "", lambda r: _least(r, r.min_usable_bytes))
    return rows


def _least(result: Prediction, value: int | None) -> str:
    """Returns a size, marked as a lower bound if the rest of the run is unknown."""
    is_part = result.outlook is not None and result.outlook.failed_at_event >= 0 and value is not None
    return phrase("simulate.at_least", bytes=_bytes(value)) if is_part else _bytes(value)


def _bytes(value: int | None) -> str:
    return _NOTHING if value is None else format_bytes(value)


def _count(value: int | None) -> str:
    return _NOTHING if value is None else format_count(value)


def _rate(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.1f}"


def _saved(result: Prediction) -> str:
    return _NOTHING if result.saved_bytes is None else saving(result.saved_bytes)


def _ran(recorded: RecordedRun) -> str:
    if recorded.num_ooms is None:
        return _NOTHING
    return phrase("outlook.fate.oom") if recorded.num_ooms else phrase("outlook.fate.runs")


def fate_of(result: Prediction) -> Phrase:
    """Returns the result of a simulated run in one or two words."""
    if result.num_calls_past_assertion and not result.num_ooms and result.first_oom is None:
        return phrase("outlook.fate.breaks")
    return fate(result.fits, "" if result.outlook is None else result.outlook.basis)


def _failures(page: TerminalPage, report: PredictionReport) -> None:
    for number, result in enumerate(report.results):
        if result.first_oom is not None:
            page.gap()
            page.text(_failure(name_of(number), result.first_oom, result.num_ooms), indent=2)
        if result.num_calls_past_assertion:
            page.gap()
            page.text(phrase("simulate.undefined", name=name_of(number)), indent=2)


def _unknown(page: TerminalPage, report: PredictionReport) -> None:
    """Adds the facts about runs that get past the recorded failed allocation."""
    for number, result in enumerate(report.results):
        if result.fits is None and result.outlook is not None:
            page.gap()
            page.text(
                phrase("outlook.sentence", name=name_of(number), text=past_failure(result.outlook)), "bold", indent=2
            )
            for said in sentences(result.outlook):
                page.text(said, indent=2)


def _failure(name: str, first: FirstOom, count: int) -> Phrase:
    what = " · ".join(plain(part, LONGEST) for part in (first.name, first.site) if part)
    room = first.usable_bytes
    parts = [
        phrase(
            "simulate.failure",
            name=name,
            event=first.at_event,
            bytes=format_bytes(first.requested_bytes),
            what=phrase("simulate.failure.what", what=what) if what else "",
            reserved=format_bytes(first.reserved_bytes)
            if room is None
            else phrase("simulate.failure.of", reserved=format_bytes(first.reserved_bytes), room=format_bytes(room)),
        )
    ]
    if first.shortfall_bytes:
        parts.append(phrase("simulate.failure.missing", bytes=format_bytes(first.shortfall_bytes)))
    if first.largest_free_bytes is not None:
        parts.append(phrase("simulate.failure.largest", bytes=format_bytes(first.largest_free_bytes)))
    if count > 1:
        parts.append(phrase("simulate.failure.more", count=count - 1))
    return joined(parts)


def _words(page: TerminalPage, report: PredictionReport) -> None:
    """Explains the rows."""
    page.gap()
    for meaning in (
        *split_meanings([report.recorded, *report.results]),
        *meanings([fate_of(result) for result in report.results]),
        phrase("simulate.means.retries"),
    ):
        page.text(meaning, "dim", indent=2)
