"""Simulated runs for people, in a terminal: the answer, how exact the model is, then one column a run, the recorded one first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memdiag.allocator.prediction import CalibrationReport, FirstOom, Prediction, PredictionReport, RecordedRun
from memdiag.findings import Fragmentation
from memdiag.render.lightpage import Cell, LightPage, cells
from memdiag.render.look import PLAIN, Look
from memdiag.render.outlook import MEANINGS, fate, past_failure, sentences
from memdiag.render.simulate_advice import advice
from memdiag.render.simulate_answer import answer, share_of
from memdiag.render.simulate_lifetimes import lifetimes
from memdiag.render.simulate_mempools import mempools
from memdiag.render.simulate_offload import offloading
from memdiag.render.simulate_planned import planned
from memdiag.render.simulate_stitching import stitching
from memdiag.render.split import PARTS
from memdiag.render.text import plain
from memdiag.units import format_bytes, format_count, plural

LONGEST = 200  # characters of settings
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NOTHING = "-"


def render(report: PredictionReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = LightPage(look)
    page.text(answer(report, [name_of(number) for number in range(len(report.results))]), "bold")
    page.gap()
    _calibration(page, report)
    _legend(page, report)
    _tables(page, report)
    for number, result in enumerate(report.results):
        if result.lifetimes is not None:
            lifetimes(page, name_of(number), result.lifetimes)
        if result.planned is not None:
            planned(page, name_of(number), result.planned)
        if result.stitching is not None:
            stitching(page, name_of(number), result.stitching)
        if result.offload is not None:
            offloading(page, name_of(number), result.offload)
        if result.mempools is not None:
            mempools(page, name_of(number), result.mempools)
    _failures(page, report)
    _unknown(page, report)
    if report.advice is not None:
        advice(page, report.advice)
    _words(page, report)
    return page.finish()


def name_of(number: int) -> str:
    """Returns the letters of a simulated run: A to Z, then AA."""
    return _LETTERS[number] if number < len(_LETTERS) else name_of(number // len(_LETTERS) - 1) + _LETTERS[number % len(_LETTERS)]


def _calibration(page: LightPage, report: PredictionReport) -> None:
    found = report.calibration
    label, style, said = _verdict(found)
    page.grid("lw", [((label, style), (said, "bold"))], indent=0)
    first = found.first_divergence
    if first is not None:
        page.text(f"First difference at event {format_count(first.at_event)}: recorded {first.expected}; simulated {first.got}.", indent=2)
        page.text(f"Probable cause: {first.cause}.", indent=2)
        if found.what_if_error_bytes is not None:
            page.text(f"Reserved bytes are off by {format_bytes(found.what_if_error_bytes)} at most: so may a prediction be.", indent=2)
    for note in (*found.notes, *(report.card.notes if report.with_min_capacity or _has_card(report) else ())):
        page.text(f"{note[0].upper()}{note[1:]}.", "dim", indent=2)


def _has_card(report: PredictionReport) -> bool:
    return any(result.capacity_bytes is not None for result in report.results)


def _verdict(found: CalibrationReport) -> tuple[str, str, str]:
    if found.exact is None:
        return "NOT CALIBRATED", "yellow", "the file does not say where in memory tensors lay: there is nothing to compare the model with"
    if not found.events:
        return "NOT CALIBRATED", "yellow", "there is nothing in the trace to compare"
    of = f"{format_count(found.exact)} of {format_count(found.events)} recorded addresses and segment events"
    if found.is_exact:
        return "CALIBRATED", "green", f"exact: the recorded settings, simulated, give {of}"
    return "CALIBRATED", "yellow", f"{share_of(found.exact_fraction or 0.0)}: the recorded settings, simulated, give {of}"


def _legend(page: LightPage, report: PredictionReport) -> None:
    page.gap()
    card = _card(report)
    rows: list[Sequence[Cell]] = [
        (("recorded", "bold"), f"{_settings(report.recorded.policy, report.recorded.conf)}{card}"),
    ]
    for number, result in enumerate(report.results):
        is_card = report.is_capacity_known or result.capacity_bytes != report.capacity_bytes
        size = on(result.capacity_bytes, result.room_bytes, is_card=is_card)
        unit = "torch_npu" if result.policy.startswith("npu") else "torch"
        same = ": the recorded settings" if result.is_recorded and report.recorded.conf is not None else ""
        said = f"{_settings(result.policy, result.conf)}, {unit} {plain(result.torch_version)}, {size}{same}"
        rows.append(((name_of(number), "bold cyan"), said))
    page.grid("lw", rows)


def _card(report: PredictionReport) -> str:
    if report.capacity_bytes is None:
        return ""
    if not report.is_capacity_known:
        return f", room for the allocator: {format_bytes(report.capacity_bytes)} at most"
    return f", {on(report.capacity_bytes, report.card.room_bytes)}"


def on(capacity: int | None, room: int | None, *, is_card: bool = True) -> str:
    """Returns the name of a card, and the room of the allocator on it where that is less; ``is_card``: the card's size is known."""
    if capacity is None:
        return "no limit"
    if not is_card:
        return f"{format_bytes(capacity)} of room for the allocator"
    said = f"{format_bytes(capacity)} card"
    return said if room is None or room == capacity else f"{said} with {format_bytes(room)} of room for the allocator"


def _settings(policy: str, conf: str | None) -> str:
    if conf is None:
        return f"{policy}, settings not known"
    return f"{policy}, {plain(conf, LONGEST)}" if conf else f"{policy}, default settings"


Value = Callable[[Prediction], str]


def _tables(page: LightPage, report: PredictionReport) -> None:
    """Adds the runs beside each other, as many as there is room for; more go below."""
    first = 0
    while first < len(report.results):
        count = len(report.results) - first
        while count > 1 and _width(_rows(report, first, count)) > page.width:
            count -= 1
        page.gap()
        page.grid("l" + "r" * (count + 1), _rows(report, first, count))
        first += count


def _width(rows: list[list[Cell]]) -> int:
    columns = [max(cells(cell if isinstance(cell, str) else cell[0]) for cell in column) for column in zip(*rows, strict=True)]
    return 2 + sum(columns) + 2 * (len(columns) - 1)


def _rows(report: PredictionReport, first: int, count: int) -> list[list[Cell]]:
    results = report.results[first : first + count]
    recorded = report.recorded
    rows: list[list[Cell]] = [["", ("recorded", "bold"), *((name_of(first + n), "bold cyan") for n in range(len(results)))]]

    def add(what: str, then: str, now: Value, style: str = "") -> None:
        rows.append([what, then, *((now(result), style) for result in results)])

    add("peak reserved", _bytes(recorded.peak_reserved_bytes), lambda r: format_bytes(r.peak_reserved_bytes), "bold")
    add("saved", "", _saved)
    if any(result.error_bytes for result in results):
        add("  give or take", "", lambda r: _NOTHING if r.saved_bytes is None else format_bytes(r.error_bytes))
    requested = [_requested(recorded.peak_reserved_bytes, recorded.fragmentation)]
    requested += [_requested(result.peak_reserved_bytes, result.fragmentation) for result in results]
    rows.append(["  at peak: requested", *map(_bytes, requested)])  # what the peak consists of, not what is saved
    for name, _, _, _ in PARTS[1:]:
        sizes = [_part(each, name) for each in (recorded.fragmentation, *(result.fragmentation for result in results))]
        if any(sizes):
            rows.append([f"  at peak: {name}", *map(_bytes, sizes)])
    add("retries", _count(recorded.num_retries), lambda r: format_count(r.num_retries))
    add("releases to the driver", "", lambda r: format_count(r.num_cycles))
    if any(result.mallocs_per_step is not None for result in results):
        add("driver mallocs a step", _rate(recorded.mallocs_per_step), lambda r: _rate(r.mallocs_per_step))
    else:
        add("driver mallocs", _count(recorded.device_allocs), lambda r: format_count(r.device_allocs))
    add("runs", _ran(recorded), _runs)
    if report.with_min_capacity:
        add("smallest card", "", lambda r: _least(r, r.min_capacity_bytes), "bold")
        if any(result.min_room_bytes != result.min_capacity_bytes for result in results):
            add("  room on it", "", lambda r: _least(r, r.min_room_bytes))
    return rows


def _least(result: Prediction, value: int | None) -> str:
    """A size that is enough; at least that much where the rest of the run is unknown."""
    is_part = result.outlook is not None and result.outlook.failed_at >= 0 and value is not None
    return f"at least {_bytes(value)}" if is_part else _bytes(value)


def _bytes(value: int | None) -> str:
    return _NOTHING if value is None else format_bytes(value)


def _count(value: int | None) -> str:
    return _NOTHING if value is None else format_count(value)


def _rate(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:,.1f}"


def _saved(result: Prediction) -> str:
    if result.saved_bytes is None:
        return _NOTHING
    return format_bytes(result.saved_bytes) if result.saved_bytes >= 0 else f"{format_bytes(-result.saved_bytes)} more"


def _requested(reserved: int | None, split: Fragmentation) -> int | None:
    parts = [_part(split, name) for name, _, _, _ in PARTS[1:]]
    if reserved is None or None in parts:
        return None
    return reserved - sum(part for part in parts if part is not None)


def _part(split: Fragmentation, name: str) -> int | None:
    value: int | None = getattr(split, f"{name}_bytes")
    return value


def _ran(recorded: RecordedRun) -> str:
    if recorded.num_ooms is None:
        return _NOTHING
    return "out of memory" if recorded.num_ooms else "yes"


def _runs(result: Prediction) -> str:
    if result.num_undefined and not result.num_ooms and result.first_oom is None:
        return "breaks"
    return fate(result.fits, "" if result.outlook is None else result.outlook.basis)


def _failures(page: LightPage, report: PredictionReport) -> None:
    for number, result in enumerate(report.results):
        if result.first_oom is not None:
            page.gap()
            page.text(f"{name_of(number)} runs out of memory {_failure(result.first_oom, result.num_ooms)}", indent=2)
        if result.num_undefined:
            page.gap()
            said = "the real allocator stops at an assertion of its own (it miscounts the ranges of private pools)"
            page.text(f"{name_of(number)}: from some call on {said}; nothing is predicted after that.", indent=2)


def _unknown(page: LightPage, report: PredictionReport) -> None:
    """What is known of runs that get past the allocation that failed when they were recorded."""
    for number, result in enumerate(report.results):
        if result.fits is None and result.outlook is not None:
            page.gap()
            page.text(f"{name_of(number)} {past_failure(result.outlook)}.", "bold", indent=2)
            for sentence in sentences(result.outlook):
                page.text(sentence, indent=2)


def _failure(first: FirstOom, count: int) -> str:
    what = " · ".join(plain(part, LONGEST) for part in (first.name, first.site) if part)
    said = f"at event {format_count(first.at_event)}: {format_bytes(first.requested_bytes)} are asked for" + (f" ({what})" if what else "")
    said += f" while {format_bytes(first.reserved_bytes)} are held"
    if first.room_bytes is not None:
        said += f" of {format_bytes(first.room_bytes)}"
    if first.missing_bytes:
        said += f"; the driver has {format_bytes(first.missing_bytes)} too little"
    if first.largest_free_bytes is not None:
        said += f", and the largest free block has {format_bytes(first.largest_free_bytes)}"
    return said + (f". After it, {plural(count - 1, 'more request')} would fail." if count > 1 else ".")


def _words(page: LightPage, report: PredictionReport) -> None:
    """What the rows mean."""
    shown = [
        name for name, _, _, _ in PARTS[1:]
        if any(_part(each, name) for each in (report.recorded.fragmentation, *(result.fragmentation for result in report.results)))
    ]  # fmt: skip
    meanings = {name: meaning for name, _, _, meaning in PARTS}
    page.gap()
    for name in shown:
        page.text(f"{name}: {meanings[name]}", "dim", indent=2)
    for word in dict.fromkeys(_runs(result) for result in report.results):
        if word in MEANINGS:
            page.text(MEANINGS[word], "dim", indent=2)
    page.text("retries: requests for which all cached memory had to be given back first; each stops the device", "dim", indent=2)
