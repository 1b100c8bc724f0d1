"""``memdiag fit``: which configurations of a command fit on which devices, before one is rented."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.engine_option import Address, check_engine
from memdiag.cli.options import AsHtml, AsMarkdown, ExpertLoad
from memdiag.errors import BUDGET_HIT, DONE, MemdiagError
from memdiag.text import phrase

if TYPE_CHECKING:
    from memdiag.results.fit import FitReport


def fit(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUES …] -- COMMAND …",
            help="Values of placeholders as with --grid, then the command with a placeholder {NAME} for each of them.",
            show_default=False,
        ),
    ] = None,
    *,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            "-d",
            metavar="DEVICE,…",
            help=(
                "Devices on which configurations must fit, for example cuda:h100-80g,npu:910b-64g "
                "(memdiag devices lists them); can be repeated."
            ),
            show_default=False,
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            "-g",
            metavar="NAME=VALUES",
            help="Values of the placeholder {NAME}: 1,2,4 or 1..8 or 512..8192*2 or none,full; can be repeated.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="CONFIG",
            help="Run a program of memdiag for the model of this config.json (transformers or diffusers).",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="train|lora|inference|ddp|zero1|zero3|fsdp2|megatron",
            help="Program that memdiag runs for --model. Default: train.",
            show_default=False,
        ),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(
            "--python",
            metavar="PYTHON",
            help="Python for the program of --model, with torch and transformers or megatron-core. Default: python.",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="Try only configurations that meet this condition, for example 'tp*pp<=world'; can be repeated.",
            show_default=False,
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME=VALUE",
            help="Environment variable of the command, with placeholders in its value; can be repeated.",
            show_default=False,
        ),
    ] = None,
    world: Annotated[
        str | None,
        typer.Option(
            "--world",
            metavar="N",
            help="Number of ranks, as a number or an expression such as 'tp*pp*8'; memdiag runs each rank alone.",
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks",
            metavar="K,…",
            help="Ranks to run with --world. Default: the first, the last, and one in the second pipeline stage.",
            show_default=False,
        ),
    ] = None,
    grows: Annotated[
        str | None,
        typer.Option(
            "--grows",
            metavar="NAME,…",
            help=(
                "Placeholders whose larger values need at least as much memory as smaller ones. "
                "Default: those with usual names (mbs, seq, layers …)."
            ),
            show_default=False,
        ),
    ] = None,
    shrinks: Annotated[
        str | None,
        typer.Option(
            "--shrinks",
            metavar="NAME,…",
            help="Placeholders whose larger values, or values later in the list, need at most as much memory. "
            "Default: tensor parallelism (tp …).",
            show_default=False,
        ),
    ] = None,
    expert_load: ExpertLoad = None,
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive", help="Run every configuration, instead of inferring some results from other runs."
        ),
    ] = False,
    tune_seconds: Annotated[
        float,
        typer.Option(
            "--tune-seconds",
            metavar="S",
            min=0,
            help="Time limit in seconds to search allocator settings for runs that fail or have little headroom; "
            "0 skips this search.",
        ),
    ] = 60.0,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            help="Number of runs at the same time. Default: as many as processors and host memory allow.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="local|ray",
            help="Workers that make the runs: processes of this machine, or a Ray cluster.",
        ),
    ] = "local",
    address: Address = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Directory for the runs; a later search reuses them."),
    ] = Path("memdiag-fit"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts (memdiag explain fit describes the keys).")
    ] = False,
    as_md: AsMarkdown = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table of comma-separated values.")] = False,
    as_html: AsHtml = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print a line for each run.")] = False,
) -> None:
    """Find which configurations of a training command fit on a device, without that device.

    memdiag runs the command on simulated devices with unlimited memory, once
    for each configuration that the search needs, and replays the recordings for
    each device. It skips a configuration if the result of another run already
    shows whether it fits.

    Exit status: 0 a configuration fits on a device, 1 none fits, 2 error.
    """
    from memdiag.cli.emit import emit, form_of
    from memdiag.cli.fit_progress import shown
    from memdiag.cli.loading import OnTerminal
    from memdiag.fit.grid import AXIS, read_axes
    from memdiag.fit.order import FitOrder
    from memdiag.fit.ranks import read_ranks
    from memdiag.fit.recipes import USUAL_GRID, command_of, compute_for
    from memdiag.fit.run import fit as search
    from memdiag.render import renderer

    if as_csv and (as_json or as_md):
        raise MemdiagError(phrase("errors.json-md"), phrase("errors.json-md.hint"))
    form = "csv" if as_csv else form_of(as_json=as_json, as_md=as_md, output=None)
    words = list(command or [])
    axes = list(grid or [])
    while words and AXIS.fullmatch(words[0]):
        axes.append(words.pop(0))
    devices, compute = _devices(device or []), None
    check_engine(engine, address)
    if model is not None:
        if words:
            raise MemdiagError(phrase("fit.error.model-command"), phrase("fit.error.model-command.hint"))
        axes = axes or list(USUAL_GRID)
        words = list(command_of(python or "python", model, recipe or "train", read_axes(axes), world))
        compute = compute_for(model)
    elif recipe is not None or python is not None:
        raise MemdiagError(phrase("fit.error.recipe-model"), phrase("fit.error.model.hint"))
    if not words:
        raise MemdiagError(
            phrase("errors.no-command"), "memdiag fit --device … --grid mbs=1..8 -- python train.py --mbs {mbs}"
        )
    if not axes:
        raise MemdiagError(phrase("fit.error.no-axis"), phrase("fit.error.axis.hint"))
    if ranks is not None and world is None:
        raise MemdiagError(phrase("fit.error.ranks-without-world"), phrase("fit.error.ranks.hint"))
    order = FitOrder(
        tuple(words),
        devices,
        tuple(axes),
        _variables(env or [], expert_load, compute),
        tuple(where or ()),
        world,
        None if ranks is None else read_ranks(ranks),
        None if grows is None else _names(grows),
        None if shrinks is None else _names(shrinks),
        exhaustive,
        jobs,
        output,
        tune_seconds,
        engine,
        address,
    )
    with shown(quiet=quiet) as on_progress:
        report = search(order, OnTerminal(), on_progress)
    emit(lambda look: renderer("fit", form)(report, look), None)
    _write(report, {"json": output / "fit.json", **({} if as_html is None else {"html": as_html})})
    raise typer.Exit(DONE if any(report.fitting(number) for number in range(len(devices))) else BUDGET_HIT)


def _write(report: FitReport, files: dict[str, Path]) -> None:
    from memdiag.output_file import write_whole
    from memdiag.redaction import is_on, redact_text
    from memdiag.render import renderer

    for form, file in files.items():
        text = renderer("fit", form)(report)
        write_whole(file, redact_text(text) if is_on() else text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _devices(texts: list[str]) -> tuple[str, ...]:
    """Returns the devices; a comma also separates options of one device: ``cuda:h100-80g,total=40GiB,cuda:4090``."""
    found: list[str] = []
    for text in texts:
        for part in text.split(","):
            if "=" in part and found:
                found[-1] += f",{part.strip()}"
            elif part.strip():
                found.append(part.strip())
    if not found:
        raise MemdiagError(phrase("fit.error.no-device"), phrase("fit.error.no-device.hint"))
    return tuple(found)


def _variables(texts: list[str], expert_load: str | None, compute: str | None = None) -> dict[str, str]:
    """Returns the variables to set for the command."""
    from memdiag.runs.order import assumed_values

    found = assumed_values("", expert_load=expert_load, compute=compute)
    for text in texts:
        name, is_given, value = text.partition("=")
        if not is_given or not name.isidentifier():
            raise MemdiagError(phrase("fit.error.env", text=text), phrase("fit.error.env.hint"))
        found[name] = value
    return found
