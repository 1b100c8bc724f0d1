"""The report as GitHub-flavoured markdown, to paste into an issue.

Text from a file is in code spans, or escaped: it must not end a table, mention a person, or link to another issue.
"""

from __future__ import annotations

from memdiag import vocabulary
from memdiag.render.analyze import owners, what_if, would_fit
from memdiag.render.analyze.steps import next_steps
from memdiag.render.support import card, words
from memdiag.render.support.amounts import percent
from memdiag.render.support.bar import stacked_bar
from memdiag.render.support.chart import chart
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.markdown import WIDTH, cell, code, escape, fence, table
from memdiag.render.support.split import fit, no_split, split, split_title
from memdiag.results.finding import Finding
from memdiag.results.report import DeviceReport, Report
from memdiag.text import in_ascii, joined, phrase, plain, sentence
from memdiag.units import format_bytes
from memdiag.version import __version__


def render(report: Report, look: Look = PLAIN) -> str:
    """Returns the report as markdown; of ``look``, only ``unicode`` is used."""
    lines = [*_would_fit(report), *_card(report)]
    lines += table(("", ""), ((escape(fact.label), cell(fact.value)) for fact in words.source_facts(report)))
    idle = [device for device in report.devices if words.is_idle(device)]
    for device in report.devices:
        if device not in idle:
            lines += _device(device, titled=len(report.devices) > 1)
    if idle:
        lines += [phrase("report.idle", devices=", ".join(str(device.device) for device in idle)), ""]
    for shown in owners.of_host(report):
        lines += _owners(shown)
    lines += [f"### {phrase('summary.findings')}", ""]
    for finding in words.in_order(report.findings):
        lines += _finding(finding)
    if not report.findings:
        lines += [phrase("report.no-problem"), ""]
    lines += _what_if(report)
    if report.notes:
        lines += [f"### {phrase('report.notes')}", ""]
        lines += [f"- {code(note.code)} {escape(note.text)}" for note in report.notes] + [""]
    lines += [f"### {phrase('report.next')}", ""]
    for purpose, line in next_steps(report):
        lines += [
            escape(phrase("report.purpose", purpose=purpose)),
            "",
            *fence([plain(line)], "sh" if line.startswith("memdiag") else "python"),
            "",
        ]
    lines.append(f"<sub>memdiag {escape(__version__)}</sub>")
    text = "\n".join(lines) + "\n"
    return text if look.unicode else in_ascii(text)


def _would_fit(report: Report) -> list[str]:
    """Returns whether a tensor would fit, if that was requested."""
    lines: list[str] = []
    for each in would_fit.answers(report):
        lines += [
            f"## {escape(each.title)}",
            "",
            f"**{escape(each.text)}**",
            "",
            *(f"- {escape(detail)}" for detail in each.details),
            "",
        ]
    return lines


def _card(report: Report) -> list[str]:
    """Returns the verdict card."""
    verdict, colon = card.verdict_of(report), phrase("report.colon")
    lines = [f"## memdiag: {words.severity_name(verdict.severity)}", "", f"**{escape(verdict.summary)}**", ""]
    for row in card.rows(verdict):
        lines += [f"- **{escape(row.label)}{colon}** {escape(row.text)}"]
        lines += ["", *(f"  {line}" for line in fence([row.command], "sh")), ""] if row.command else []
    return [*lines, ""]


def _device(device: DeviceReport, *, titled: bool) -> list[str]:
    lines = [f"### {phrase('report.device-title', device=str(device.device))}", ""] if titled else []
    if curve := chart(device, WIDTH):
        lines += [f"#### {phrase('report.timeline')}", "", *fence([line.plain.rstrip() for line in curve], "text"), ""]
    more = [line for shown in owners.of_device(device) for line in _owners(shown)]
    return [*lines, *_usage(device), *_split(device), *_holders(device), *more]


def _usage(device: DeviceReport) -> list[str]:
    columns = words.moments(device)
    rows = [
        (
            phrase("report.with-note", text=vocabulary.name("curve", key), note=vocabulary.meaning("curve", key)),
            *(words.amount(getattr(usage, f"{key}_bytes")) for _, _, usage in columns),
        )
        for key in words.USAGE
    ]
    rows.append((phrase("report.difference"), *(words.amount(words.difference(usage)) for _, _, usage in columns)))
    head = (
        "",
        *(phrase("report.with-note", text=title, note=where) if where else title for title, where, _ in columns),
    )
    lines = [f"#### {phrase('report.usage')}", "", *table(head, rows, range(1, len(head)))]
    place = words.moment_place(device)
    sentences = joined([words.counts(device), phrase("report.moment-place", place=place) if place else ""])
    return [*lines, escape(sentences), ""]


def _at(title: str, moment: str) -> str:
    return phrase("report.title-at", title=title, moment=moment) if moment else title


def _split(device: DeviceReport) -> list[str]:
    lines = [f"#### {escape(_at(split_title(device), words.moment(device)))}", ""]
    rows = split(device)
    if not rows:
        return [*lines, no_split(device), ""]
    bar = stacked_bar([(row.glyph, row.style, row.bytes or 0) for row in rows], WIDTH)
    lines += [*fence([bar.plain], "text"), ""]
    cells = ((f"`{row.glyph}` {row.name}", words.amount(row.bytes), percent(row.share), row.meaning) for row in rows)
    lines += table(("", *(phrase(key) for key in ("report.bytes", "report.share", "report.meaning"))), cells, (1, 2))
    return [*lines, escape(fit(device)), ""] if fit(device) else lines


def _holders(device: DeviceReport) -> list[str]:
    lines = [f"#### {escape(phrase('summary.holders', moment=words.moment(device)))}", ""]
    kinds, lives = words.holders(device.by_category, "category"), words.holders(device.by_lifetime, "lifetime")
    for title, rows in ((phrase("report.category"), kinds), (phrase("report.lifetime"), lives)):
        cells = [(escape(row.name), format_bytes(row.bytes), percent(row.share), row.meaning) for row in rows]
        lines += table(
            (title, phrase("report.bytes"), phrase("report.share"), ""),
            cells or [(words.unknown(), "", "", "")],
            (1, 2),
        )
    if device.by_module:
        modules = (
            (cell(words.module_words(m.name)), format_bytes(m.bytes), percent(m.fraction), f"{m.num_tensors:,}")
            for m in device.by_module
        )
        lines += table(
            [phrase(f"report.{key}") for key in ("module", "bytes", "share", "num-tensors")], modules, (1, 2, 3)
        )
    if not device.top_sites:
        return [*lines, phrase("report.sites.unknown" if device.top_sites is None else "report.sites.none"), ""]
    named = any(site.tensor_names for site in device.top_sites)
    sites = (
        (
            format_bytes(s.bytes),
            f"{s.num_tensors:,}",
            cell(plain(s.name)) or words.unknown(),
            *([cell(", ".join(s.tensor_names))] if named else []),
        )
        for s in device.top_sites
    )
    lines += table(
        [phrase(f"report.{key}") for key in ("bytes", "num-tensors", "site", *(["names"] if named else []))],
        sites,
        (0, 1),
    )
    stacks = [
        f"{plain(site.name)}\n" + "\n".join(f"    {plain(frame)}" for frame in site.stack)
        for site in device.top_sites
        if site.stack
    ]
    if stacks:
        block = fence([line for stack in stacks for line in stack.split("\n")], "text")
        lines += [f"<details><summary>{phrase('report.stacks')}</summary>", "", *block, "", "</details>", ""]
    return lines


def _owners(shown: owners.OwnerTable) -> list[str]:
    amounts = len(shown.head) - 1
    rows = [(*row[:-1], cell(row[-1])) for row in shown.rows]
    lead = [escape(shown.lead), ""] if shown.lead else []
    return [f"#### {shown.title}", "", *lead, *table(shown.head, rows, range(amounts))]


def _finding(finding: Finding) -> list[str]:
    where = "" if finding.device is None else phrase("report.device", device=str(finding.device))
    severity = joined([words.severity_name(finding.severity), where], ", ")
    lines = [f"#### {escape(finding.code)} {escape(phrase('report.with-note', text=finding.title, note=severity))}", ""]
    if finding.evidence:
        cells = ((escape(e.what), escape(words.value_words(e)), cell(plain(e.where))) for e in finding.evidence)
        lines += table((phrase("report.evidence"), "", phrase("report.where")), cells)
    for fix in finding.fixes:
        text = phrase("report.with-note", text=fix.title, note=fix.applicability) if fix.applicability else fix.title
        lines += [f"**{phrase('report.md.fix')}** {escape(text)}", ""]
        if fix.change:
            lines += [*fence([plain(fix.change)]), ""]
        if fix.caveat:
            lines += [f"*{phrase('report.md.but')}* {escape(fix.caveat)}", ""]
    if finding.saving:
        repro = f": {code(finding.saving.repro)}" if finding.saving.repro else ""
        lines += [f"*{phrase('report.md.saves')}* {escape(words.saving_words(finding.saving))}{repro}", ""]
    return lines


def _what_if(report: Report) -> list[str]:
    if not report.what_if:
        return []
    cells = [(escape(row.saves), row.peak, row.fate, cell(row.change)) for row in what_if.rows(report)]
    shown = table(what_if.heads(), cells, (0, 1)) if cells else []
    return [f"### {what_if.title()}", "", escape(sentence(what_if.subtitle(report))), "", *shown]
