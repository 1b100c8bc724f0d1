"""Writes a report to stdout or a file, as text, JSON or markdown."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.errors import MemdiagError
from memdiag.output_file import write_whole
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.render.support.look import Look

_SUFFIXES = {".json": "json", ".md": "md"}


def form_of(*, as_json: bool, as_md: bool, output: Path | None, with_html: bool = False) -> str:
    """Returns ``json``, ``md``, ``terminal`` or (``with_html``) ``html``, from the options or the suffix of the file.

    Raises:
        MemdiagError: Both ``--json`` and ``--md`` were given.
    """
    if as_json and as_md:
        raise MemdiagError(phrase("errors.json-md"), phrase("errors.json-md.hint"))
    if as_json:
        return "json"
    if as_md:
        return "md"
    suffix = output.suffix.lower() if output else ""
    return "html" if with_html and suffix in {".html", ".htm"} else _SUFFIXES.get(suffix, "terminal")


def emit(draw: Callable[[Look], str], output: Path | None) -> None:
    """Writes the text that ``draw`` returns to stdout or to a file; a file has 100 columns and no colours.

    Raises:
        MemdiagError: The text cannot be written.
    """
    from memdiag.cli.talk import look_of, say, write_out
    from memdiag.redaction import is_on, redact_text
    from memdiag.render.support.look import Look

    if output is None:
        write_out(draw(look_of(sys.stdout)))
        return
    text = draw(Look(width=100))
    text = redact_text(text) if is_on() else text
    write_whole(output, text)
    say(phrase("progress.wrote", path=str(output)))
