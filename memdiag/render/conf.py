"""Allocator settings for people, in a terminal: what each key does, what is wrong, and the line to paste."""

from __future__ import annotations

from memdiag.findings import Evidence, Finding
from memdiag.render.lightpage import LightPage
from memdiag.render.look import PLAIN, Look
from memdiag.render.text import plain
from memdiag.settings.model import version_text
from memdiag.settings.report import ConfReport, Listing, Setting
from memdiag.settings.tables import BACKEND_WORDS
from memdiag.units import plural

LONGEST = 300  # characters of a text
_STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


def render(report: ConfReport, look: Look = PLAIN) -> str:
    """Returns the report as text for a terminal of ``look.width`` columns."""
    page = LightPage(look)
    _verdict(page, report)
    _facts(page, report)
    for setting in report.settings:
        _setting(page, setting)
    if report.related:
        page.title("Beside it")
        for name, value, meaning in report.related:
            page.gap()
            page.text(f"{plain(name)}={plain(value, LONGEST)}", "bold", indent=2)
            page.text(plain(meaning), indent=4)
    if report.findings:
        page.title("Findings")
        for finding in report.findings:
            _finding(page, finding, report)
    if report.line:
        page.title("Use this instead")
        page.paste(plain(report.line), indent=2)
    return page.finish()


def render_list(table: Listing, look: Look = PLAIN) -> str:
    """Returns the table of all settings as text."""
    page = LightPage(look)
    for number, (backend, words, variable, keys) in enumerate(table.backends):
        if number:
            page.gap()
        unit = "torch_npu" if backend in {"npu", "mindspeed"} else "torch"
        of = f" in {unit} {table.torch_version}" if table.torch_version else ""
        page.text(f"{variable}: {words}{of}", "bold")
        for key in keys:
            page.gap()
            page.text(key.name, "cyan", indent=2)
            page.text(key.meaning, indent=4)
            versions = f"since {unit} {version_text(key.since)}" if backend != "mindspeed" else ""
            versions += f", until {version_text(key.until)}" if key.until else ""
            page.text(" · ".join(filter(None, (f"default {key.default}", key.range, versions))), "dim", indent=4)
    page.title("Beside them")
    page.gap()
    for beside in table.variables:
        page.grid("lw", [[(beside.name, "cyan"), (beside.range, "dim")]])
        page.text(beside.meaning, indent=4)
    return page.finish()


def _verdict(page: LightPage, report: ConfReport) -> None:
    unit = "torch_npu" if report.backend in {"npu", "mindspeed"} else "torch"
    found = {name: sum(finding.severity == name for finding in report.findings) for name in ("critical", "warning")}
    if found["critical"]:
        label, style, said = "CRITICAL", _STYLES["critical"], f"{plural(found['critical'], 'problem')} that stop the program"
        said = said if found["critical"] > 1 else "1 problem that stops the program"
        said += f", and {plural(found['warning'], 'warning')}" if found["warning"] else ""
    elif found["warning"]:
        label, style, said = "WARNING", _STYLES["warning"], f"{plural(found['warning'], 'setting')} not doing what is written"
    elif report.text is None:
        label, style, said = "OK", "green", f"{report.variable} is not set: everything is at its default"
    else:
        label, style, said = "OK", "green", "these settings are read as they are written"
    page.grid("lw", [((label, style), (f"{said}: {BACKEND_WORDS[report.backend]}, {unit} {report.checked_version}", "bold"))], indent=0)


def _facts(page: LightPage, report: ConfReport) -> None:
    if report.text is not None:
        page.gap()
        page.grid("lw", [((report.variable, "dim"), plain(report.text, LONGEST) or "(empty)")])
    if report.torch_version is None:
        page.text("The newest known version; --torch 2.6 or --torch-npu 2.6 checks another.", "dim", indent=2)


def _setting(page: LightPage, setting: Setting) -> None:
    page.gap()
    said = f"{setting.key}:{setting.value}" if setting.value else setting.key
    page.text(plain(said, LONGEST), "bold", indent=2)
    if not setting.meaning:
        page.text("Nothing is known of this key.", indent=4)
        return
    page.text(setting.meaning, indent=4)
    page.text(f"default {setting.default} · {setting.range} · since {setting.since}", "dim", indent=4)


def _finding(page: LightPage, finding: Finding, report: ConfReport) -> None:
    page.gap()
    label = f"{plain(finding.code)}  {finding.severity.upper()}"
    page.grid("lw", [((label, _STYLES[finding.severity]), (plain(finding.title, LONGEST), "bold"))])
    for evidence in finding.evidence:
        page.grid("lw", [(("why", "dim"), _evidence(evidence, report.variable))], indent=9)
    for fix in finding.fixes:
        page.grid("lw", [(("fix", "green"), plain(fix.title, LONGEST))], indent=9)
        if fix.change and fix.change != report.line:
            page.paste(plain(fix.change), indent=14)
        if fix.caveat:
            page.grid("lw", [(("but", "dim"), plain(fix.caveat, LONGEST))], indent=9)


def _evidence(evidence: Evidence, variable: str) -> str:
    value = "" if evidence.value is None else f" ({plain(evidence.value, LONGEST)})"
    where = f" · {plain(evidence.where)}" if evidence.where and evidence.where != variable else ""
    return plain(evidence.what, LONGEST) + value + where
