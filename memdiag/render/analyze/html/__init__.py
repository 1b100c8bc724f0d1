"""The report as one self-contained HTML file: no network, no server, no other file.

The page itself (markup, style, scripts, words) is in ``assets``. This module combines its parts and the data. All text
from a trace is in the compressed data, so none of it is ever interpreted as markup.
"""

from __future__ import annotations

import base64
import html
import json
import zlib
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from memdiag import manual, vocabulary
from memdiag.render.analyze import owners, what_if
from memdiag.render.analyze.json import as_dict
from memdiag.render.support import card, words
from memdiag.render.support.json import as_json
from memdiag.text import LANGUAGES, Language, catalogue, phrase, plain, speaking
from memdiag.units import format_bytes

if TYPE_CHECKING:
    from memdiag.results.finding import Finding
    from memdiag.results.picture import Picture
    from memdiag.results.report import Report

FORMAT = 1
# Prefixes of the page's keys, for each kind of class.
_PREFIXES: dict[vocabulary.Kind, str] = {
    "category": "categories",
    "lifetime": "lifetimes",
    "phase": "phases",
    "card": "card",
}
_WORDS: tuple[vocabulary.Kind, ...] = ("curve", "part")  # parts come last: their meaning of "requested" applies there
# Occasions of a sample of the card, as in CardMoment.
OCCASIONS = ("start", "phase", "step", "mark", "timer", "oom", "end", "save", "saved")
# Words shared with other forms of a report: the page's key, and the key of the phrase.
SHARED = {
    "unknown": "summary.unknown",
    "severity.critical": "summary.severity.critical",
    "severity.warning": "summary.severity.warning",
    "severity.info": "summary.severity.info",
    "severity.ok": "summary.severity.ok",
    "device.number": "report.device",
    "nav.findings": "summary.findings",
    "findings.title": "summary.findings",
    "tile.findings": "summary.findings",
    "split.title": "summary.split",
    "todo.title": "verdict.todo",
    "timeline.title": "report.timeline",
    "at.step": "places.step",
    "timeline.peak": "vocabulary.moment.peak",
    "instant.is-peak": "vocabulary.moment.peak",
    "instant.peak-short": "vocabulary.moment.peak",
    "panel.category": "report.category",
    "tensors.category": "report.category",
    "map.by-category": "report.category",
    "panel.lifetime": "report.lifetime",
    "tensors.lifetime": "report.lifetime",
    "map.by-lifetime": "report.lifetime",
    "panel.module": "report.module",
    "tensors.module": "report.module",
    "tensors.where": "report.site",
    "map.by-site": "report.site",
    "tensors.name": "screen.column.name",
    "policies.what-if": "report.what-if",
    "policies.change": "report.what-if.change",
    "policies.saves": "report.what-if.saves",
    "policies.peak": "report.what-if.peak",
    "policies.fate": "report.what-if.fate",
    "policies.setting": "report.what-if.change",
    "policies.difference": "report.what-if.saves",
    "settings.notes": "report.notes",
    "findings.but": "report.md.but",
    "findings.saving": "report.md.saves",
    "findings.none": "report.no-problem",
    "card.title": "report.card-time.title",
    "card.free": "report.card-time.free",
    "card.fullest": "plots.card.fullest",
    **{f"card.when.{when}": f"report.card-time.when.{when}" for when in OCCASIONS},
    "group.default-pool": "places.pool.default",
    "group.default-stream": "places.stream.default",
}
_ASSETS = files(__name__) / "assets"


def render(picture: Picture, lang: str = "en") -> str:
    """Returns the page; ``lang`` (one of ``LANGUAGES``) is its initial language."""
    packed = base64.b64encode(
        zlib.compress(json.dumps(data_of(picture, lang), separators=(",", ":")).encode(), 9)
    ).decode()
    parts = {
        "<!--memdiag:style-->": _element("style", _root_style() + _read(".css")),
        "<!--memdiag:script-->": _element("script", _scripts()),
        "<!--memdiag:data-->": f'<script type="application/octet-stream" id="memdiag-data">{packed}</script>',
        "{{lang}}": {"zh": "zh-CN"}.get(lang, lang),
        "{{title}}": html.escape(f"memdiag: {plain(picture.report.source.path, 80)}"),
    }
    page = (_ASSETS / "page.html").read_text(encoding="utf-8")
    for mark, text in parts.items():
        page = page.replace(mark, text, 1)
    return page


def data_of(picture: Picture, lang: str) -> dict[str, Any]:
    """Returns the data of the page: dicts, lists, str, int, float, bool and None only."""
    report = picture.report
    shown = {
        "format": FORMAT,
        "lang": lang,
        "report": as_dict(report),
        "severity": words.worst(report.findings),
        "spoken": {lang: _spoken(lang, report) for lang in LANGUAGES},
        "frames": picture.frames,
        "labels": picture.labels,
        "kinds": picture.kinds,
        "sites": picture.sites,
        "strings": picture.strings,
        "modules": picture.modules,
        "pages": _pages(report),
        **picture.codes,
    }
    # The many numbers are JSON types already, so they are not converted again.
    return {**as_json(shown), "stacks": picture.stacks, "devices": picture.devices, "simulated": picture.simulated}


def _spoken(lang: Language, report: Report) -> dict[str, Any]:
    """Returns the texts of the page in one language.

    Switching the page's language replaces the texts of the other one.
    """
    with speaking(lang):
        return {
            "headline": words.headline(report),
            "card": [
                {"label": plain(row.label), "text": row.text, "command": row.command}
                for row in card.rows(card.verdict_of(report))
            ],
            "remedies": _remedies(report),
            "owners": {
                "host": [asdict(table) for table in owners.of_host(report)],
                "devices": [[asdict(table) for table in owners.of_device(device)] for device in report.devices],
            },
            "facts": [[fact.label, fact.value] for fact in words.source_facts(report)],
            "finding_words": [_finding(finding) for finding in words.in_order(report.findings)],
            "what_if": [
                {"change": plain(row.change), "saves": row.saves, "peak": row.peak, "fate": row.fate}
                for row in what_if.rows(report)
            ],
            "what_if_words": plain(what_if.subtitle(report)) if report.what_if else "",
            "settings": [[plain(key), plain(value, 400)] for key, value in report.settings.items()],
            "notes": [[plain(note.code), plain(note.text)] for note in report.notes],
        }


def _pages(report: Report) -> dict[str, list[list[str]]]:
    """Returns the explanation of each finding on the page, by code, as kind and text of its parts."""
    pages = {finding.code: manual.find(finding.code) for finding in report.findings}
    return {
        code: [[block.kind, block.text] for block in manual.blocks(page.text)]
        for code, page in pages.items()
        if page is not None
    }


def _remedies(report: Report) -> list[dict[str, int]]:
    """Returns every remedy once, as the index of its finding on the page and its index in that finding."""
    found = words.in_order(report.findings)
    return [
        {
            "finding": next(number for number, each in enumerate(found) if each is finding),
            "fix": next(number for number, each in enumerate(finding.fixes) if each is fix),
        }
        for finding, fix in card.remedies(report)
    ]


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": plain(finding.code),
        "title": plain(finding.title),
        "severity": finding.severity,
        "device": finding.device,
        "evidence": [[words.value_words(item), plain(item.what), plain(item.where)] for item in finding.evidence],
        "fixes": [
            {
                "title": plain(fix.title),
                "change": plain(fix.change),
                "applicability": plain(fix.applicability),
                "caveat": plain(fix.caveat),
                "kind": fix.kind,
            }
            for fix in finding.fixes
        ],
        "saving": words.saving_words(finding.saving) if finding.saving else "",
        "size": format_bytes(finding.weight_bytes) if finding.weight_bytes else "",
    }


def _element(name: str, text: str) -> str:
    return f"<{name}>\n{text}\n</{name}>"


def _scripts() -> str:
    """Returns the charting library, the words in every language, then the page's own scripts, by name."""
    library = (_ASSETS / "vendor" / "echarts.min.js").read_text(encoding="utf-8")
    spoken = json.dumps({lang: page_words(lang) for lang in LANGUAGES}, ensure_ascii=False).replace("</", "<\\/")
    palette = json.dumps({**_colours(), "line": vocabulary.LINES})
    return "\n".join(
        (library, f"window.MEMDIAG_WORDS = {spoken};", f"window.MEMDIAG_COLOURS = {palette};", _read(".js"))
    )


def page_words(lang: Language) -> dict[str, str]:
    """Returns all words of the page by key: its own, and those of shared concepts."""
    own = {key: texts[lang] for key, texts in catalogue("page").items()} | {
        key: _template(shared, lang) for key, shared in SHARED.items()
    }
    with speaking(lang):
        own |= {f"action.{key}": vocabulary.action(key) for key in vocabulary.actions()}
        own |= {f"module.{name}": phrase(f"report.module.{key}") for name, key in words.MODULES.items()}
        for kind, prefix in _PREFIXES.items():
            own |= {f"{prefix}.{key}": vocabulary.name(kind, key) for key in vocabulary.STYLES[kind]}
        for kind in _WORDS:
            own |= {f"word.{key}": vocabulary.name(kind, key) for key in vocabulary.STYLES[kind]}
            own |= {f"why.{key}": vocabulary.meaning(kind, key) for key in vocabulary.STYLES[kind]}
        own |= {f"moment.{moment}": vocabulary.when(moment) for moment in vocabulary.NAMED_MOMENTS}
    return own


def _template(key: str, lang: Language) -> str:
    """Returns the text of a phrase with its placeholders, which the page fills."""
    area, _, name = key.partition(".")
    return catalogue(area)[name][lang]


def _colours() -> dict[str, dict[str, str]]:
    """Returns the palette: {kind: {class: colour}}."""
    return {kind: {key: style.color for key, style in classes.items()} for kind, classes in vocabulary.STYLES.items()}


def _root_style() -> str:
    """Returns the palette as CSS variables: ``--part-stranded`` and the like."""
    rules = (
        f"--{kind}-{key.replace('_', '-')}: {color};"
        for kind, classes in _colours().items()
        for key, color in classes.items()
    )
    return f":root {{ --failure: {vocabulary.FAILURE}; --retry: {vocabulary.RETRY}; {' '.join(rules)} }}\n"


def _read(suffix: str) -> str:
    found = sorted((item for item in _ASSETS.iterdir() if item.name.endswith(suffix)), key=lambda item: item.name)
    return "\n".join(item.read_text(encoding="utf-8") for item in found)
