"""``memdiag conf``: explain and check allocator settings, and print a corrected line."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from memdiag.cli.budgets import end_if_hit, over, read_budgets
from memdiag.cli.options import FailOnFindings, OutputText
from memdiag.errors import BUDGET_HIT, COULD_NOT, MemdiagError
from memdiag.text import phrase

_USAGE = """\
error: no settings given
hint: give them in quotes, or check the variables that are set here:
  memdiag conf 'expandable_segments:True,max_split_size_mb:128'
  memdiag conf --env
  memdiag conf --list
"""


def conf(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SETTINGS",
            help="Settings as key:value,… or NAME=key:value,…; - reads them from standard input.",
            show_default=False,
        ),
    ] = None,
    *,
    env: Annotated[bool, typer.Option("--env", help="Check the variables that are set in this environment.")] = False,
    every: Annotated[bool, typer.Option("--list", help="List all settings with their defaults and versions.")] = False,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="cuda|hip|npu",
            help="Backend that reads the settings. Default: inferred from them.",
            show_default=False,
        ),
    ] = None,
    torch: Annotated[
        str | None,
        typer.Option(
            "--torch", metavar="X.Y", help="torch version to check for. Default: the newest known.", show_default=False
        ),
    ] = None,
    torch_npu: Annotated[
        str | None,
        typer.Option(
            "--torch-npu",
            metavar="X.Y",
            help="torch_npu version to check for; implies --backend npu.",
            show_default=False,
        ),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            "--platform", metavar="linux|windows", help="Platform that the program runs on.", show_default=False
        ),
    ] = None,
    using: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FEATURE",
            help="Feature that the program uses: ipc, cuda-graphs, mempool, sleep-mode, pluggable, snapshots, "
            "mindspeed-pools; "
            "can be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain settings describes the keys).")
    ] = False,
    output: OutputText = None,
    fail_on: FailOnFindings = None,
) -> None:
    """Check allocator settings such as PYTORCH_CUDA_ALLOC_CONF before a run.

    Reports settings that the allocator would reject, ignore or read
    differently, explains each key, and prints a corrected line.

    Exit status: 0 success, 1 a critical finding or a --fail-on condition
    matched, 2 error.
    """
    budgets = read_budgets(fail_on, phrase("errors.fail-on.hint", one="critical", other="MD651"))

    from memdiag.cli.emit import emit, form_of
    from memdiag.render import renderer
    from memdiag.settings.request import ConfRequest, read_features

    form = form_of(as_json=as_json, as_md=False, output=output)
    if every:
        table = ConfRequest(backend, torch, torch_npu).listing()
        draw = renderer("conf", "list_json" if form == "json" else "list_terminal")
        emit(lambda look: draw(table, look), output)
        return
    if not text and not env:
        typer.echo(_USAGE, err=True, nl=False)
        raise typer.Exit(COULD_NOT)
    if text and env:
        raise MemdiagError(phrase("errors.conf-env"), phrase("errors.run-twice"))
    features = read_features(using or [])
    if env:
        here = platform or ("windows" if sys.platform == "win32" else "linux")
        report = ConfRequest(backend, torch, torch_npu, here, features).check_environment(os.environ)
    else:
        given = " ".join(text or [])
        given = sys.stdin.read(1 << 20) if given == "-" else given
        report = ConfRequest(backend, torch, torch_npu, platform or "", features).check_text(given)
    render = renderer("conf", "json" if form == "json" else "terminal")
    emit(lambda look: render(report, look), output)
    end_if_hit(over(report.findings, budgets))
    if over(report.findings, ["critical"]):
        raise typer.Exit(BUDGET_HIT)
