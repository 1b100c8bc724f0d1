"""Allocator settings for a terminal: the meaning of each key, problems, and the line to paste."""

from __future__ import annotations

from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.page import TerminalPage
from memdiag.render.support.words import severity_name
from memdiag.results.conf import ConfReport, Setting
from memdiag.results.finding import Evidence, Finding
from memdiag.text import phrase, plain

LONGEST = 300  # characters of a text
_STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


def render(report: ConfReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = TerminalPage(look)
    _verdict(page, report)
    _facts(page, report)
    for setting in report.settings:
        _setting(page, setting)
    if report.related:
        page.title(phrase("conf.title.related"))
        for each in report.related:
            page.gap()
            page.text(f"{plain(each.name)}={plain(each.value, LONGEST)}", "bold", indent=2)
            page.text(plain(each.meaning), indent=4)
    if report.findings:
        page.title(phrase("conf.title.findings"))
        for finding in report.findings:
            _finding(page, finding, report)
    if report.command:
        page.title(phrase("conf.title.line"))
        page.paste(plain(report.command), indent=2)
    return page.finish()


def _verdict(page: TerminalPage, report: ConfReport) -> None:
    unit = "torch_npu" if report.backend in {"npu", "mindspeed"} else "torch"
    found = {name: sum(finding.severity == name for finding in report.findings) for name in ("critical", "warning")}
    if found["critical"]:
        label, style, said = "CRITICAL", _STYLES["critical"], phrase("conf.verdict.critical", count=found["critical"])
        if found["warning"]:
            said = phrase("conf.verdict.both", count=found["critical"], warnings=found["warning"])
    elif found["warning"]:
        label, style, said = "WARNING", _STYLES["warning"], phrase("conf.verdict.warning", count=found["warning"])
    elif report.text is None:
        label, style, said = "OK", "green", phrase("conf.verdict.unset", variable=report.variable)
    else:
        label, style, said = "OK", "green", phrase("conf.verdict.right")
    where = {"backend": phrase(f"conf.backend.{report.backend}"), "unit": unit, "version": report.checked_version}
    page.grid("lw", [((label, style), (phrase("conf.verdict", verdict=said, **where), "bold"))], indent=0)


def _facts(page: TerminalPage, report: ConfReport) -> None:
    if report.text is not None:
        page.gap()
        page.grid("lw", [((report.variable, "dim"), plain(report.text, LONGEST) or "(empty)")])
    if report.torch_version is None:
        page.text(phrase("conf.newest"), "dim", indent=2)


def _setting(page: TerminalPage, setting: Setting) -> None:
    page.gap()
    said = f"{setting.key}:{setting.value}" if setting.value else setting.key
    page.text(plain(said, LONGEST), "bold", indent=2)
    if not setting.meaning:
        page.text(phrase("conf.nothing"), indent=4)
        return
    page.text(setting.meaning, indent=4)
    page.text(
        phrase("conf.setting", default=setting.default, range=setting.range, since=setting.since), "dim", indent=4
    )


def _finding(page: TerminalPage, finding: Finding, report: ConfReport) -> None:
    page.gap()
    label = f"{plain(finding.code)}  {severity_name(finding.severity)}"
    page.grid("lw", [((label, _STYLES[finding.severity]), (plain(finding.title, LONGEST), "bold"))])
    for evidence in finding.evidence:
        page.grid("lw", [((phrase("conf.label.why"), "dim"), _evidence(evidence, report.variable))], indent=9)
    for fix in finding.fixes:
        page.grid("lw", [((phrase("conf.label.fix"), "green"), plain(fix.title, LONGEST))], indent=9)
        if fix.change and fix.change != report.command:
            page.paste(plain(fix.change), indent=14)
        if fix.caveat:
            page.grid("lw", [((phrase("conf.label.but"), "dim"), plain(fix.caveat, LONGEST))], indent=9)


def _evidence(evidence: Evidence, variable: str) -> str:
    value = "" if evidence.value is None else f" ({plain(evidence.value, LONGEST)})"
    where = f" · {plain(evidence.where)}" if evidence.where and evidence.where != variable else ""
    return plain(evidence.what, LONGEST) + value + where
