"""``memdiag conf``: allocator settings in; what each does, what is wrong with them, and the line to use instead out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.budgets import end_if_hit, over, read_budgets
from memdiag.errors import BUDGET_HIT, COULD_NOT, MemdiagError

if TYPE_CHECKING:
    from memdiag.results.conf import ConfReport
    from memdiag.settings.relations import Scene

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
            help="Settings as key:value,… or NAME=key:value,…; - reads them from stdin.",
            show_default=False,
        ),
    ] = None,
    *,
    env: Annotated[bool, typer.Option("--env", help="Check the variables set in this environment.")] = False,
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
            help="Feature that the program uses: ipc, cuda-graphs, mempool, sleep-mode, pluggable, snapshots, mindspeed-pools; "
            "can be repeated.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain settings).")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the report to FILE; the ending .json selects JSON.",
            show_default=False,
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="warning|critical|CODE",
            help="Exit with status 1 if a finding has this severity or code; can be repeated.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check allocator settings such as PYTORCH_CUDA_ALLOC_CONF before a run.

    Reports settings that the allocator would reject, ignore or read differently, explains each key, and prints a corrected line.

    Exit status: 0 success, 1 a critical finding or a --fail-on condition matched, 2 error.
    """
    budgets = read_budgets(fail_on, "for example --fail-on critical or --fail-on MD651")
    if every:
        _list(backend, torch, torch_npu, as_json=as_json, output=output)
        return
    if not text and not env:
        typer.echo(_USAGE, err=True, nl=False)
        raise typer.Exit(COULD_NOT)
    if text and env:
        raise MemdiagError("settings and --env exclude each other", "run it twice")
    features = _features(using or [])

    from memdiag.cli.emit import emit, form_of
    from memdiag.render import renderer

    if env:
        from memdiag.settings.environment import check_environment, guess_backend

        scene = _scene(
            backend,
            torch,
            torch_npu,
            platform or ("windows" if sys.platform == "win32" else "linux"),
            guess_backend(os.environ),
        )
        report = check_environment(os.environ, scene, features, torch_npu or torch)
    else:
        report = _text(" ".join(text or []), backend, torch, torch_npu, platform, features)
    form = form_of(as_json=as_json, as_md=False, output=output)
    render = renderer("conf", "json" if form == "json" else "terminal")
    emit(lambda look: render(report, look), output)
    end_if_hit(over(report.findings, budgets))
    if over(report.findings, ["critical"]):
        raise typer.Exit(BUDGET_HIT)


def _text(
    text: str,
    backend: str | None,
    torch: str | None,
    torch_npu: str | None,
    platform: str | None,
    features: tuple[str, ...],
) -> ConfReport:
    """Checks what was given on the command line: settings, or a shell line with any number of variables."""
    from memdiag.settings.environment import ALLOC_VARIABLES, check_environment, guess_backend, read_order
    from memdiag.settings.lint import lint
    from memdiag.settings.written import assignments, guess_by_keys

    if text == "-":
        text = sys.stdin.read(1 << 20)
    given = assignments(text)
    named = {assignment.variable: assignment.value for assignment in given if assignment.variable}
    guess = guess_backend(named) if named else guess_by_keys(text)
    scene = _scene(backend, torch, torch_npu, platform or "", guess)
    if named:
        named |= {
            read_order(scene)[0]: each.value
            for each in given
            if not each.variable and read_order(scene)[0] not in named
        }
    alone = [assignment for assignment in given if not assignment.variable or assignment.variable in ALLOC_VARIABLES]
    if len(given) == 1 and (not given[0].variable or given[0].variable == read_order(scene)[0]):
        return lint(alone[0], scene, features, torch_npu or torch)
    lost = {assignment.variable: assignment.lost for assignment in alone if assignment.lost}
    return check_environment(named, scene, features, torch_npu or torch, lost)


def _scene(backend: str | None, torch: str | None, torch_npu: str | None, platform: str, guess: str) -> Scene:
    from memdiag.settings.model import BACKENDS, parse_version
    from memdiag.settings.relations import Scene
    from memdiag.settings.tables import newest

    chosen = (backend or ("npu" if torch_npu else guess)).lower()
    if chosen not in BACKENDS:
        raise MemdiagError(f"--backend {backend}: neither cuda, hip nor npu", "for example --backend npu")
    if platform not in {"", "linux", "windows"}:
        raise MemdiagError(f"--platform {platform}: neither linux nor windows", "for example --platform windows")
    is_npu = chosen in {"npu", "mindspeed"}
    if torch_npu and not is_npu:
        raise MemdiagError(f"--torch-npu goes with --backend npu, not {chosen}", "use --torch for CUDA and ROCm")
    said = (torch_npu or torch) if is_npu else torch
    version = parse_version(said) if said else None
    if said and version is None:
        raise MemdiagError(f"{said}: not a version", "for example --torch 2.6")
    return Scene(chosen, version or newest(chosen), platform, version is not None)


def _features(given: list[str]) -> tuple[str, ...]:
    from memdiag.settings.features import FEATURES

    features = tuple(
        word.strip().lower().replace("_", "-") for item in given for word in item.split(",") if word.strip()
    )
    for feature in features:
        if feature not in FEATURES:
            raise MemdiagError(f"--with {feature}: not a feature known here", f"features are {', '.join(FEATURES)}")
    return features


def _list(backend: str | None, torch: str | None, torch_npu: str | None, *, as_json: bool, output: Path | None) -> None:
    from memdiag.cli.emit import emit, form_of
    from memdiag.render import renderer
    from memdiag.settings.listing import listing

    scene = _scene(backend, torch, torch_npu, "", "cuda")
    chosen = (scene.backend,) if backend or torch_npu else ("cuda", "npu")
    table = listing(chosen, scene.version if scene.is_given else None)
    form = form_of(as_json=as_json, as_md=False, output=output)
    render = renderer("conf", "list_json" if form == "json" else "list_terminal")
    emit(lambda look: render(table, look), output)
