"""``memdiag lint``: find source code that wastes memory or stalls the device, without running or importing it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from memdiag.cli.budgets import end_if_hit, over, read_budgets
from memdiag.cli.options import FailOnFindings
from memdiag.errors import COULD_NOT, MemdiagError
from memdiag.text import phrase

_USAGE = """\
error: no path given
hint: give files or directories of Python source:
  memdiag lint train.py
  memdiag lint src --fail-on warning
"""
_FORMATS = ("terminal", "json", "github", "sarif")


def lint(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Python files, or directories to search.", show_default=False),
    ] = None,
    *,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select", metavar="CODE", help="Report only findings with this code; can be repeated.", show_default=False
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            metavar="PATTERN",
            help="Exclude files and directories that match this pattern; can be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain lint describes the keys).")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="github|sarif|json",
            help="Output format: pull request annotations, SARIF or JSON.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the report to FILE; the ending .json or .sarif selects the format.",
            show_default=False,
        ),
    ] = None,
    fail_on: FailOnFindings = None,
) -> None:
    """Find source code that wastes device memory or stalls the device.

    Files are parsed, never run. A comment "memdiag: ignore[MD806]" suppresses
    this finding on its line.

    Exit status: 0 success, 1 a --fail-on condition matched, 2 error, or a named
    file (or every file) could not be checked.
    """
    budgets = read_budgets(fail_on, phrase("errors.fail-on.hint", one="warning", other="MD804"))
    if not paths:
        typer.echo(_USAGE, err=True, nl=False)
        raise typer.Exit(COULD_NOT)
    codes = _codes(select)
    form = _form(form, as_json=as_json, output=output)

    from memdiag.cli.emit import emit
    from memdiag.lint.files import lint as look_through
    from memdiag.render import renderer

    report = look_through(paths, codes, tuple(exclude or ()), os.cpu_count() or 1)
    render = renderer("lint", form)
    emit(lambda look: render(report, look), output)
    named = {str(path) for path in paths}
    if report.unchecked and (named.intersection(report.unchecked) or len(report.unchecked) == report.num_files):
        raise typer.Exit(COULD_NOT)
    end_if_hit(over(report.findings, budgets))


def _codes(select: list[str] | None) -> frozenset[str] | None:
    """Returns the codes given with ``--select``; None without the option.

    Raises:
        MemdiagError: A code is not one of lint's.
    """
    from memdiag.registry import LINT_RULES

    codes = frozenset(code.strip().upper() for item in select or () for code in item.split(",") if code.strip())
    unknown = sorted(codes - set(LINT_RULES))
    if unknown:
        raise MemdiagError(
            phrase("errors.select", value=str(unknown[0])),
            phrase("errors.select.hint", value=", ".join(LINT_RULES)),
        )
    return codes or None


def _form(form: str | None, *, as_json: bool, output: Path | None) -> str:
    """Returns the key of the renderer, from the option or from the suffix of the file.

    Raises:
        MemdiagError: The form is unknown.
    """
    if form is None:
        suffix = output.suffix.lower() if output else ""
        return "json" if as_json else {".json": "json", ".sarif": "sarif"}.get(suffix, "terminal")
    if form not in _FORMATS or (as_json and form != "json"):
        raise MemdiagError(phrase("errors.lint-format", form=str(form)), phrase("errors.lint-format.hint"))
    return form
