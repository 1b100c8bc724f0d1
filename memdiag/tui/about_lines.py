"""Lines about the file: facts, settings, missing data, and the effect of other settings."""

from __future__ import annotations

from rich.text import Text

from memdiag.render.analyze import what_if
from memdiag.render.support import words
from memdiag.results.report import Report
from memdiag.text import joined, phrase
from memdiag.trace.model import Trace
from memdiag.tui.lines import DIM, STRONG, Lines, folded, short
from memdiag.units import format_bytes

_LONGEST = 1000


class AboutLines(Lines):
    """Lines on the trace; a report adds more."""

    def __init__(self, trace: Trace, report: Report | None) -> None:
        self.empty = phrase("screen.about.empty")
        self._texts = _texts(trace, report)
        self._folded: tuple[int, list[Text]] = (0, [])
        self.width = 80

    def set_width(self, width: int) -> None:
        """Wraps the lines at a width."""
        self.width = width

    def __len__(self) -> int:
        return len(self._lines(self.width))

    def line(self, number: int, width: int) -> Text:  # noqa: ARG002 - they are wrapped already
        """Returns a line."""
        return self._lines(self.width)[number]

    def summary(self) -> str:
        """Returns a description of these lines."""
        return phrase("screen.about.summary")

    def _lines(self, width: int) -> list[Text]:
        if self._folded[0] != width:
            self._folded = width, folded(Text("\n").join(self._texts), width)
        return self._folded[1]


def _texts(trace: Trace, report: Report | None) -> list[Text]:
    lines = [Text(short(words.headline(report), _LONGEST), style=STRONG), Text()] if report else []
    facts = (
        [(fact.label, fact.value) for fact in words.source_facts(report) if fact.key != "settings"]
        if report
        else _plain_facts(trace)
    )
    lines += [_pair(label, value) for label, value in facts]
    lines += [Text(), Text(phrase("report.fact.settings"), style=STRONG)]
    lines += [_pair(short(key, 60), short(value, _LONGEST)) for key, value in trace.settings.items()] or [
        Text(words.unknown(), style=DIM)
    ]
    notes = report.notes if report else trace.notes
    if notes:
        lines += [Text(), Text(phrase("report.notes"), style=STRONG)]
        lines += [_pair(short(note.code, 10), short(note.text, _LONGEST)) for note in notes]
    if report and report.what_if:
        lines += [Text(), Text(what_if.title(), style=STRONG), Text(short(what_if.subtitle(report)), style=DIM)]
        for row in what_if.rows(report):
            brief = phrase("report.what-if.brief", peak=row.peak, fate=row.fate, change=short(row.change, _LONGEST))
            lines.append(Text(joined([row.saves, brief], "; ")))
    return lines


def _plain_facts(trace: Trace) -> list[tuple[str, str]]:
    held = max((max(device.end.values()) for device in trace.devices), default=0)
    sizes = [phrase("report.events", count=trace.num_events), phrase("report.tensors", count=trace.num_tensors)]
    return [
        (phrase("report.fact.file"), short(trace.path)),
        (phrase("report.fact.holds"), joined([*sizes, phrase("screen.at-end", bytes=format_bytes(held))], ", ")),
    ]


def _pair(label: str, value: str) -> Text:
    return Text(f"{label}  ", style=DIM).append(value, style="not dim")
