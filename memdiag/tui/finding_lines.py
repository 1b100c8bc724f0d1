"""Findings as rows, and each in full: evidence, fixes, the lines to copy."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from memdiag.render.support import words
from memdiag.results.finding import Finding
from memdiag.results.report import Report
from memdiag.text import phrase
from memdiag.tui.lines import DIM, STRONG, Lines, cell, fitted, short

_STYLES = {"critical": "bold #ff5f5f", "warning": "#ffaf00", "info": "#5fafff"}


@dataclass
class FindingLines(Lines):
    """The rows of a report's findings, worst first; ``text`` filters them."""

    report: Report | None
    text: str = ""
    error: str = ""

    def __post_init__(self) -> None:
        found = words.in_order(self.report.findings) if self.report else []
        self.findings = [finding for finding in found if self.text.lower() in f"{finding.code} {finding.title}".lower()]
        if self.report is None:
            self.empty = self.error or phrase("screen.findings.diagnosing")
        else:
            self.empty = phrase("screen.findings.no-match" if found else "report.no-problem")

    def __len__(self) -> int:
        return len(self.findings)

    def summary(self) -> str:
        """Returns the verdict."""
        return short(words.headline(self.report), 400) if self.report else self.empty

    def line(self, number: int, width: int) -> Text:
        """Returns a finding."""
        finding = self.findings[number]
        line = Text(no_wrap=True, end="").append_text(
            cell(words.severity_name(finding.severity), 9, _STYLES[finding.severity])
        )
        line.append_text(cell(short(finding.code, 10), 6, STRONG))
        several = len(self.report.devices) > 1 if self.report else False
        title = finding.title
        if several and finding.device is not None:
            title = phrase("report.of-device", device=str(finding.device), text=title)
        title = short(title, 400)
        if cell_len(title) <= width - 15:
            return line.append_text(fitted(title, max(width - 15, 1)))
        return line.append_text(cell(title, max(width - 15, 1)))

    def changes(self, number: int) -> list[str]:
        """Returns the distinct lines to paste of a finding's fixes."""
        return list(dict.fromkeys(fix.change for fix in self.findings[number].fixes if fix.change))

    def detail(self, number: int) -> Text:
        """Returns a finding in full; lines to copy show the key that copies them."""
        finding = self.findings[number]
        text = Text()
        text.append(f"{words.severity_name(finding.severity)} ", _STYLES[finding.severity]).append(
            short(finding.code, 10) + "\n", STRONG
        )
        text.append(short(finding.title) + "\n\n", STRONG)
        self._evidence(text, finding)
        changes = self.changes(number)
        for fix in finding.fixes:
            text.append(f"\n{phrase('report.label.fix')}  ", "bold #5fd7af").append(short(fix.title))
            text.append(
                phrase("report.with-note", text="", note=short(fix.applicability, 400)) if fix.applicability else "",
                DIM,
            ).append("\n")
            if fix.change:
                place = changes.index(fix.change)
                text.append(f"  [{place + 1}] " if place < 9 else "      ", DIM).append(
                    short(fix.change) + "\n", STRONG
                )
            if fix.caveat:
                text.append(f"  {phrase('screen.but', text=short(fix.caveat))}\n", DIM)
        if finding.saving:
            text.append(f"\n{phrase('report.label.saves')} ").append(words.saving_words(finding.saving) + "\n", STRONG)
            if finding.saving.repro:
                text.append(f"  {short(finding.saving.repro)}\n", DIM)
        return text

    def _evidence(self, text: Text, finding: Finding) -> None:
        for item in finding.evidence:
            text.append_text(cell(words.value_words(item), 12, STRONG, right=True)).append("  ").append(
                short(item.what, 400)
            )
            text.append(f" · {short(item.where, 200)}\n" if item.where else "\n", DIM)
