"""``memdiag explain``: print the page of a finding, or any other page of the documentation."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from memdiag.cli.options import AsJson


def explain(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CODE|PAGE", help="Finding code such as MD201, or page name such as conf.", show_default=False
        ),
    ] = None,
    *,
    as_json: AsJson = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the text to FILE.", show_default=False)
    ] = None,
) -> None:
    """Explain a finding: its meaning, why it matters, and how to fix it.

    Without a code, list all findings and the other pages of the documentation.

    Exit status: 0 success, 2 error.
    """
    from memdiag import manual
    from memdiag.cli.emit import emit, form_of
    from memdiag.render import renderer

    found = [manual.page(name) for name in names or manual.names()]
    form = (
        "json"
        if form_of(as_json=as_json, as_md=False, output=output) == "json"
        else "terminal"
        if names
        else "list_terminal"
    )
    emit(partial(renderer("explain", form), found), output)
