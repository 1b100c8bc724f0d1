"""The result of a check as annotations of a pull request: workflow commands in the log of GitHub's runners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag.render.check.words import holder_words, title
from memdiag.render.support.look import PLAIN, Look
from memdiag.text import phrase, plain

if TYPE_CHECKING:
    from memdiag.results.check import CheckReport, DeviceCheck


def render(report: CheckReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - all renderers have the same signature
    """Returns a line for each trace with a failed check, and for each that could not be judged; "" for none."""
    lines = []
    for each in report.traces:
        over = [judgement.reason for judgement in each.checks if judgement.status == "failed"]
        unknown = [judgement.reason for judgement in each.checks if judgement.status == "unknown"]
        if over:
            where = [phrase("check.title", title=title(each)), *map(holder_words, each.sites)] if each.sites else []
            lines.append(_command("error", each.key, [*over, *where], _place(each)))
        if unknown or each.error:
            lines.append(_command("warning", each.key, [*([each.error] if each.error else []), *unknown]))
    lines += [_command("warning", key, [phrase("check.not_given")]) for key in report.missing]
    return "".join(lines)


def _place(each: DeviceCheck) -> str:
    """Returns the first call site in the repository, so that the annotation is shown at its line."""
    place = next((holder for holder in each.sites if holder.file and holder.line), None)
    return f"file={_property(place.file)},line={place.line}" if place else ""


def _command(level: str, key: str, said: Sequence[str], where: str = "") -> str:
    properties = ",".join(part for part in (where, f"title={_property(f'memdiag {key}')}") if part)
    shown = "\n".join(plain(line) for line in said)
    return f"::{level} {properties}::{_message(shown)}\n"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(plain(text)).replace(":", "%3A").replace(",", "%2C")
