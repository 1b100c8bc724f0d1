"""The answer to ``memdiag analyze --would-fit SIZE``, for every form of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memdiag.render.support.page import TerminalPage
from memdiag.results.report import Report
from memdiag.results.would_fit import WouldFit
from memdiag.text import phrase, plain
from memdiag.units import format_bytes


class Answer(NamedTuple):
    """The question, the answer, and the facts it is based on."""

    title: str
    text: str
    details: tuple[str, ...]


def answers(report: Report) -> Iterator[Answer]:
    """Yields the answer for each device; nothing without a question."""
    for each in report.would_fit:
        size = format_bytes(each.requested_bytes)
        title = phrase("would_fit.title", bytes=size)
        if len(report.would_fit) > 1:
            title = phrase("would_fit.title.device", bytes=size, device=each.device)
        yield Answer(title, plain(each.explanation), tuple(plain(text) for text in (*_size(each), *each.details)))


def draw(page: TerminalPage, report: Report) -> None:
    """Adds the answers to a page."""
    for each in answers(report):
        page.text(each.title, "bold")
        page.text(each.text, "bold", indent=2)
        for detail in each.details:
            page.text(detail, indent=2)
        page.gap()


def _size(each: WouldFit) -> list[str]:
    if each.rounded_request_bytes == each.requested_bytes:
        return []
    return [phrase("would_fit.size", bytes=f"{each.requested_bytes:,} B", rounded=f"{each.rounded_request_bytes:,} B")]
