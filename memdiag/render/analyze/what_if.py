"""Results of replaying changed settings, in words: one row per settings line, the best first."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.results.report import Report, WhatIf
from memdiag.text import joined, phrase, plain
from memdiag.units import format_bytes


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One replay: bytes saved at the reserved peak, that peak, the result of failed requests, and the settings."""

    saves: str
    peak: str
    fate: str
    change: str


def title() -> str:
    """Returns the title of the section."""
    return phrase("report.what-if")


def subtitle(report: Report) -> str:
    """Returns how far the replays can be trusted, as a sentence without a full stop."""
    unhelpful = sum(not result.is_shown for result in report.what_if)
    exact = phrase("verdict.calibration", exact=plain(report.what_if[0].calibration))
    return joined([exact, phrase("report.what-if.unhelpful", count=unhelpful)], "; ") if unhelpful else exact


def heads() -> tuple[str, str, str, str]:
    """Returns the titles of the columns: difference, peak, result, setting."""
    return (
        phrase("report.what-if.saves"),
        phrase("report.what-if.peak"),
        phrase("report.what-if.fate"),
        phrase("report.what-if.change"),
    )


def rows(report: Report) -> list[ReplayRow]:
    """Returns the replays with a row, device by device, the best first.

    They are useful replays, and those that a finding suggested.
    """
    several = len({result.device for result in report.what_if}) > 1
    shown = [result for result in report.what_if if result.is_shown]
    ordered = sorted(shown, key=lambda result: (result.device, result.num_ooms, -result.saved_bytes))
    return [_row(result, several=several) for result in ordered]


def _row(result: WhatIf, *, several: bool) -> ReplayRow:
    change = _settings(result)
    if result.is_combination:
        change = phrase("report.what-if.together", settings=change)
    if several:
        change = phrase("report.of-device", device=str(result.device), text=change)
    return ReplayRow(_saves(result), format_bytes(result.peak_reserved_bytes), _fate(result), change)


def _settings(result: WhatIf) -> str:
    """Returns the settings of the line without its variable: findings have the whole line."""
    return result.conf or phrase("report.what-if.default")


def _saves(result: WhatIf) -> str:
    if abs(result.saved_bytes) <= result.calibration_error_bytes:
        return phrase("report.what-if.same")
    if result.saved_bytes < 0:
        return phrase("report.what-if.more", bytes=format_bytes(-result.saved_bytes))
    less = phrase("report.what-if.less", bytes=format_bytes(result.saved_bytes))
    return (
        phrase("report.what-if.error", less=less, error=format_bytes(result.calibration_error_bytes))
        if result.calibration_error_bytes
        else less
    )


def _fate(result: WhatIf) -> str:
    if result.num_ooms:
        return phrase("report.fails", count=result.num_ooms)
    return phrase("report.past" if result.num_recorded_ooms else "report.fits")
