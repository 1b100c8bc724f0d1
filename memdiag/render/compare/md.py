"""A comparison of traces as GitHub-flavoured markdown, to paste into an issue.

Text from a file is escaped, or in code spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag.render.compare import rows
from memdiag.render.compare.curves import chart, how_aligned, legend
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.markdown import WIDTH, cell, code, escape, table
from memdiag.text import in_ascii, phrase, plain
from memdiag.version import __version__

if TYPE_CHECKING:
    from memdiag.results.compare import Comparison, NameRow, SiteRow


def render(report: Comparison, look: Look = PLAIN) -> str:
    """Returns the comparison as markdown; of ``look``, only ``unicode`` is used."""
    lines = [f"## memdiag: {phrase('compare.page.md')}", ""]
    for sentence in report.verdicts:
        lines += [f"**{escape(sentence)}**", ""]
    lines += table(
        ("", phrase("compare.head.file"), ""),
        ((side.letter, cell(side.path), escape(rows.side_words(side))) for side in report.sides),
    )
    heads = rows.heads(report)
    table_rows = [
        *rows.usage_rows(report),
        *((name, values) for name, values, _ in rows.split_rows(report)),
        *rows.count_rows(report),
    ]
    lines += table(
        (rows.when(report), *heads), ([name, *values] for name, values in table_rows), range(1, len(heads) + 1)
    )
    if not report.is_same:
        lines += _curves(report)
        if report.sites is not None:
            lines += _amounts(
                phrase("compare.head.place"),
                report,
                report.sites,
                [rows.place_words(row) for row in report.sites[: report.top]],
            )
        if report.names is not None:
            lines += _amounts(
                phrase("compare.head.name"),
                report,
                report.names,
                [plain(row.name) or phrase("offload.unnamed") for row in report.names[: report.top]],
            )
        lines += _differences(report)
    lines += [f"<sub>memdiag {__version__}</sub>", ""]
    text = "\n".join(lines)
    return text if look.unicode else in_ascii(text)


def _curves(report: Comparison) -> list[str]:
    if report.curves is None:
        return []
    letters = [side.letter for side in report.sides]
    lines = chart(report.curves, report.curves.reserved, letters, WIDTH) or chart(
        report.curves, report.curves.allocated, letters, WIDTH
    )
    if not lines:
        return []
    drawn = ["".join(text for text, _ in line).rstrip() for line in lines]
    return [
        phrase("compare.chart", name=phrase("compare.title.reserved"), aligned=how_aligned(report.curves)),
        "",
        "```text",
        *drawn,
        "".join(text for text, _ in legend(report)),
        "```",
        "",
    ]


def _amounts(title: str, report: Comparison, found: Sequence[SiteRow | NameRow], labels: Sequence[str]) -> list[str]:
    made = (
        [cell(label), *rows.byte_cells(row), rows.tensor_cell(row), rows.life_cell(row)]
        for label, row in zip(labels, found, strict=False)
    )
    head = (title, *rows.heads(report), phrase("compare.head.tensors"), rows.life_title(report))
    lines = table(head, made, range(1, len(head)))
    return (
        lines
        if len(found) <= len(labels)
        else [*lines[:-1], "", phrase("compare.more", count=len(found) - len(labels)), ""]
    )


def _differences(report: Comparison) -> list[str]:
    lines = []
    if report.differences:
        made = ([escape(row[0]), *(cell(value) for value in row[1:])] for row in rows.difference_rows(report, 120))
        lines += table((phrase("compare.head.differs"), *(side.letter for side in report.sides)), made)
    for fate, number, title in rows.finding_rows(report):
        lines.append(f"- {phrase('compare.fate', fate=fate, finding=f'{code(number)} {escape(title)}')}")
    return [*lines, ""] if lines else []
