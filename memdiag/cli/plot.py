"""``memdiag plot``: draw a trace as a PNG, SVG or PDF picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.cli.options import DeviceNumber
from memdiag.errors import COULD_NOT, MemdiagError
from memdiag.text import phrase
from memdiag.views.plots import PLOT_DATA


def plot(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRACE…",
            help="Trace files or run directories. Default: the newest run in this directory.",
            show_default=False,
        ),
    ] = None,
    *,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            "-k",
            metavar="KIND,…",
            help=(
                f"Kinds of picture: {', '.join(PLOT_DATA)}; separate several by commas, or repeat the option. "
                "Default: timeline."
            ),
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR",
            help="File (.png, .svg or .pdf) or directory to write. Default: <trace>-<kind>.png.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="WxH",
            help="Size in inches such as 10x5.4, or 25x14cm. Default: depends on the kind.",
            show_default=False,
        ),
    ] = None,
    width: Annotated[
        str | None,
        typer.Option(
            "--width",
            metavar="W",
            help="Width in inches such as 3.5 (one column of a paper), or 88mm; the height follows from the plot.",
            show_default=False,
        ),
    ] = None,
    dpi: Annotated[int, typer.Option("--dpi", metavar="N", help="Resolution of a PNG in pixels per inch.")] = 160,
    style: Annotated[str, typer.Option("--style", metavar="NAME", help="Colour style: light or dark.")] = "light",
    title: Annotated[
        str | None,
        typer.Option(
            "--title", metavar="TEXT", help="Title of the picture. Default: made from the trace.", show_default=False
        ),
    ] = None,
    device: DeviceNumber = None,
    at: At = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME,…",
            help="Allocator policies to compare in --kind policies, as in memdiag simulate.",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf",
            metavar="KEY:VALUE,…",
            help="Allocator settings to compare in --kind policies; can be repeated.",
            show_default=False,
        ),
    ] = None,
    capacity: Annotated[
        str | None,
        typer.Option(
            "--capacity",
            metavar="SIZE",
            help="Memory of the device in --kind policies, for example 64GiB.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list of written pictures as JSON (memdiag explain plot).")
    ] = False,
) -> None:
    """Draw a trace as a PNG, SVG or PDF picture.

    timeline: reserved, active and allocated bytes. fragmentation: what reserved
    memory consists of. lifetimes: live memory by how long tensors live.
    policies: the same run under other settings. map: addresses of tensors at
    one moment. card: which processes held the card's memory over time.

    Exit status: 0 success, 2 error; other pictures are still written.
    """
    from memdiag.cli.choose import choose_trace
    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import busy, say, say_error, write_out
    from memdiag.output_file import is_same
    from memdiag.render import renderer
    from memdiag.render.plot.style import read_look
    from memdiag.results.written import FailedPicture, WrittenPicture, WrittenPictures
    from memdiag.runs.pictures import choose_drawn, draw, files_of, read_kinds, write_picture
    from memdiag.runs.scenarios import SimulationRequest

    kinds = read_kinds(kind or [])
    look = read_look(size, width, dpi, style, title)
    moment = read_moment(at)
    if (policy or conf or capacity) and "policies" not in kinds:
        raise MemdiagError(phrase("errors.plot-policies", value=", ".join(kinds)), phrase("errors.plot-policies.hint"))
    wanted = SimulationRequest.read(policy or [], conf, None, capacity, None)
    if wanted.offload:
        raise MemdiagError(
            phrase("errors.plot-offload"),
            phrase("errors.plot-offload.hint"),
        )
    paths = list(dict.fromkeys(choose_trace(path) for path in traces)) if traces else [choose_trace(None)]
    files = files_of(paths, kinds, output)
    if any(is_same(file, path) for file in files.values() for path in paths):
        raise MemdiagError(phrase("errors.is-trace.o", file=str(output)), phrase("errors.name-another"))
    drawn, failed = [], []
    for path in paths:
        trace = read_trace(path)
        chosen = choose_drawn(trace, device, say)
        for name in kinds:
            file = files[path, name]
            try:
                with busy(phrase("progress.drawing.file", file=str(file))):
                    form = file.suffix.lower().lstrip(".")
                    picture = draw(trace, chosen, name, form, look, moment, wanted)
            except MemdiagError as error:  # the other pictures can still be drawn
                say_error(f"--kind {name}: {error.message}", error.hint)
                failed.append(FailedPicture(name, trace.path, error.message, error.hint))
                continue
            write_picture(file, picture, output)
            say(phrase("progress.wrote", path=str(file)))
            drawn.append(WrittenPicture(str(file), name, trace.path, chosen.device, len(picture)))
    if as_json:
        write_out(renderer("plot", "json")(WrittenPictures(tuple(drawn), tuple(failed))))
    if failed:
        raise typer.Exit(COULD_NOT)
