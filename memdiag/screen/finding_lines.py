"""Findings as rows, and each in full: what was measured, what would help, the lines to copy."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from memdiag.findings import Finding, Report
from memdiag.render import words
from memdiag.screen.lines import DIM, STRONG, Lines, cell, fitted, short

_LABELS = {"critical": "CRITICAL", "warning": "WARNING", "info": "info"}
_STYLES = {"critical": "bold #ff5f5f", "warning": "#ffaf00", "info": "#5fafff"}


@dataclass
class FindingLines(Lines):
    """The rows of a report's findings, the worst first; ``text`` chooses those that hold it."""

    report: Report | None
    text: str = ""
    error: str = ""

    def __post_init__(self) -> None:
        found = words.in_order(self.report.findings) if self.report else []
        self.findings = [finding for finding in found if self.text.lower() in f"{finding.code} {finding.title}".lower()]
        if self.report is None:
            self.empty = self.error or "the trace is being diagnosed …"
        else:
            self.empty = "no finding here is like that (Esc shows all)" if found else "no problem was found in this trace"

    def __len__(self) -> int:
        return len(self.findings)

    def summary(self) -> str:
        """Returns the verdict."""
        return short(words.headline(self.report), 400) if self.report else self.empty

    def line(self, number: int, width: int) -> Text:
        """Returns a finding."""
        finding = self.findings[number]
        line = Text(no_wrap=True, end="").append_text(cell(_LABELS[finding.severity], 9, _STYLES[finding.severity]))
        line.append_text(cell(short(finding.code, 10), 6, STRONG))
        several = len(self.report.devices) > 1 if self.report else False
        where = f"device {finding.device}: " if several and finding.device is not None else ""
        title = short(where + finding.title, 400)
        if len(title) <= width - 15:
            return line.append_text(fitted(title, max(width - 15, 1)))
        return line.append_text(cell(title, max(width - 15, 1)))

    def changes(self, number: int) -> list[str]:
        """Returns the lines that the fixes of a finding change, each once."""
        return list(dict.fromkeys(fix.change for fix in self.findings[number].fixes if fix.change))

    def detail(self, number: int) -> Text:
        """Returns a finding in full; lines to copy have the key that copies them."""
        finding = self.findings[number]
        text = Text()
        text.append(f"{_LABELS[finding.severity]} ", _STYLES[finding.severity]).append(short(finding.code, 10) + "\n", STRONG)
        text.append(short(finding.title) + "\n\n", STRONG)
        self._evidence(text, finding)
        changes = self.changes(number)
        for fix in finding.fixes:
            text.append("\nfix  ", "bold #5fd7af").append(short(fix.title))
            text.append(f" ({short(fix.applicability, 400)})\n" if fix.applicability else "\n", DIM)
            if fix.change:
                place = changes.index(fix.change)
                text.append(f"  [{place + 1}] " if place < 9 else "      ", DIM).append(short(fix.change) + "\n", STRONG)
            if fix.caveat:
                text.append(f"  but: {short(fix.caveat)}\n", DIM)
        if finding.saving:
            text.append("\nsaves ").append(words.saving_words(finding.saving) + "\n", STRONG)
            if finding.saving.repro:
                text.append(f"  {short(finding.saving.repro)}\n", DIM)
        return text

    def _evidence(self, text: Text, finding: Finding) -> None:
        for item in finding.evidence:
            text.append(f"{words.value_words(item):>12}  ", STRONG).append(short(item.what, 400))
            text.append(f" · {short(item.where, 200)}\n" if item.where else "\n", DIM)
