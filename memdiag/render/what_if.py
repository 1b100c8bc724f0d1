"""What replays of changed settings gave, in words: one row a line of settings, the best first."""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.findings import Report, WhatIf
from memdiag.units import format_bytes, plural

TITLE = "What if"


@dataclass(frozen=True, slots=True)
class Row:
    """One replay: what it saves at the reserved peak, that peak, what becomes of failed requests, and the settings."""

    saves: str
    peak: str
    fate: str
    change: str


def subtitle(report: Report) -> str:
    """Returns how far the replays can be trusted."""
    said = f"replayed on this trace; recorded settings reproduced: {report.what_if[0].calibration}"
    unhelpful = sum(not result.is_shown for result in report.what_if)
    return said + (f"; {plural(unhelpful, 'other setting')} replayed, none better" if unhelpful else "")


def rows(report: Report) -> list[Row]:
    """Returns the replays worth a row, device by device, the best first: those that help, and those that a finding suggested."""
    several = len({result.device for result in report.what_if}) > 1
    shown = [result for result in report.what_if if result.is_shown]
    ordered = sorted(shown, key=lambda result: (result.device, result.num_ooms, -result.saved_bytes))
    return [_row(result, several=several) for result in ordered]


def _row(result: WhatIf, *, several: bool) -> Row:
    where = f"device {result.device}: " if several else ""
    together = "together: " if result.is_combination else ""
    return Row(_saves(result), format_bytes(result.peak_reserved_bytes), _fate(result), where + together + _settings(result))


def _settings(result: WhatIf) -> str:
    """What the line sets, without its variable: findings have the whole line."""
    return result.change.partition("=")[2] or "no settings at all"


def _saves(result: WhatIf) -> str:
    if abs(result.saved_bytes) <= result.error_bytes:
        return "nothing"
    if result.saved_bytes < 0:
        return f"{format_bytes(-result.saved_bytes)} more"
    error = f" ± {format_bytes(result.error_bytes)}" if result.error_bytes else ""
    return f"{format_bytes(result.saved_bytes)} less{error}"


def _fate(result: WhatIf) -> str:
    if result.num_ooms:
        return f"{plural(result.num_ooms, 'request')} would fail"
    return "gets past the failed allocation" if result.recorded_ooms else "no request fails"
