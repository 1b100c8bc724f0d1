"""``memdiag plot``: draw a trace as a picture: PNG, SVG or PDF."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memdiag.cli.at_option import At, read_moment
from memdiag.errors import COULD_NOT, MemdiagError
from memdiag.text import phrase
from memdiag.views.plots import PLOT_DATA

if TYPE_CHECKING:
    from memdiag.allocator.simulated_run import SimulatedRuns
    from memdiag.render.plot.style import PlotLook
    from memdiag.runs.scenarios import SimulationRequest
    from memdiag.trace.model import DeviceTrace, Trace

_FORMS = ("png", "svg", "pdf")
_DPI = (40, 1200)
_MOST_PIXELS = 100_000_000
_MARGIN = 1.1  # inches beside the panel
_VECTOR = 72  # columns an inch where there are no pixels: one a typographic point


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
            help=f"Kinds of picture: {', '.join(PLOT_DATA)}; separate several by commas, or repeat the option. Default: timeline.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR",
            help="Write to this .png, .svg or .pdf file, or to a directory. Default: <trace>-<kind>.png.",
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
            "--title", metavar="TEXT", help="Title of the picture, instead of the default one.", show_default=False
        ),
    ] = None,
    device: Annotated[
        int | None,
        typer.Option(
            "--device",
            metavar="N",
            min=0,
            help="Use only this device. Default: the one with the highest peak.",
            show_default=False,
        ),
    ] = None,
    at: At = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME,…",
            help="Policy to compare in --kind policies, as in memdiag simulate.",
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

    timeline: reserved, active and allocated bytes. fragmentation: what reserved memory consists of. lifetimes: live memory by how long
    tensors live. policies: the same run under other settings. map: addresses of tensors at one moment.

    Exit status: 0 success, 2 error; other pictures are still written.
    """
    from memdiag.cli.choose import choose_trace, is_same
    from memdiag.cli.loading import read_trace
    from memdiag.cli.talk import busy, say, say_error, write_out
    from memdiag.render import renderer
    from memdiag.results.written import FailedPicture, WrittenPicture, WrittenPictures
    from memdiag.runs.scenarios import SimulationRequest

    kinds = _kinds(kind or [])
    look = _look(size, width, dpi, style, title)
    moment = read_moment(at)
    if (policy or conf or capacity) and "policies" not in kinds:
        raise MemdiagError(
            f"--policy, --conf and --capacity are of --kind policies, not of {', '.join(kinds)}", "add --kind policies"
        )
    wanted = SimulationRequest.read(policy or [], conf, None, capacity, None)
    if wanted.offload:
        raise MemdiagError(
            "--policy offload moves tensors and cannot be drawn beside others",
            "memdiag simulate --policy offload tells of it",
        )
    paths = list(dict.fromkeys(choose_trace(path) for path in traces)) if traces else [choose_trace(None)]
    files = _files(paths, kinds, output)
    if any(is_same(file, path) for file in files.values() for path in paths):
        raise MemdiagError(f"-o {output}: this is the trace itself", "name another file")
    drawn, failed = [], []
    for path in paths:
        trace = read_trace(path)
        chosen = _device(trace, device)
        for name in kinds:
            file = files[path, name]
            try:
                with busy(phrase("progress.drawing.file", file=str(file))):
                    picture = _draw(trace, chosen, name, file, look, moment, wanted)
            except MemdiagError as error:  # the other pictures can still be drawn
                say_error(f"--kind {name}: {error.message}", error.hint)
                failed.append(FailedPicture(name, trace.path, error.message, error.hint))
                continue
            _write(file, picture, output)
            say(f"wrote {file}")
            drawn.append(WrittenPicture(str(file), name, trace.path, chosen.device, len(picture)))
    if as_json:
        write_out(renderer("plot", "json")(WrittenPictures(tuple(drawn), tuple(failed))))
    if failed:
        raise typer.Exit(COULD_NOT)


def _kinds(given: list[str]) -> list[str]:
    from difflib import get_close_matches

    names = [name.strip() for item in given for name in item.split(",") if name.strip()] or ["timeline"]
    for name in names:
        if name not in PLOT_DATA:
            close = get_close_matches(name.lower(), PLOT_DATA, 1, 0.6)
            raise MemdiagError(
                f"--kind {name}: there is no such picture",
                (f"did you mean {close[0]}? " if close else "") + f"kinds are {', '.join(PLOT_DATA)}",
            )
    return list(dict.fromkeys(names))


def _look(size: str | None, width: str | None, dpi: int, style: str, title: str | None) -> PlotLook:
    from memdiag.render.plot.style import THEMES, PlotLook, parse_size, parse_width

    if style not in THEMES:
        raise MemdiagError(f"--style {style}: there is no such style", f"styles are {', '.join(THEMES)}")
    if not _DPI[0] <= dpi <= _DPI[1]:
        raise MemdiagError(f"--dpi {dpi}: from {_DPI[0]} to {_DPI[1]} can be drawn", "150 for a screen, 300 for print")
    if size is not None and width is not None:
        raise MemdiagError("--size and --width: both give a width", "leave one out")
    inches = parse_size(size) if size is not None else None
    wide = parse_width(width) if width is not None else None
    if wide is not None and wide * wide * dpi * dpi > _MOST_PIXELS:
        raise MemdiagError(
            f"--width {width} --dpi {dpi}: more than {_MOST_PIXELS // 1_000_000} million pixels",
            "-o x.pdf needs no pixels",
        )
    if inches is not None and inches[0] * inches[1] * dpi * dpi > _MOST_PIXELS:
        raise MemdiagError(
            f"--size {size} --dpi {dpi}: more than {_MOST_PIXELS // 1_000_000} million pixels",
            "-o x.pdf needs no pixels",
        )
    return PlotLook(inches, dpi, style, title, wide)


def _files(paths: list[Path], kinds: list[str], output: Path | None) -> dict[tuple[Path, str], Path]:
    """Returns where each picture goes."""
    wanted = [(path, name) for path in paths for name in kinds]
    is_folder = output is not None and (output.is_dir() or not output.suffix)
    if output is None or is_folder:
        stems = {path: path.stem for path in paths}
        if len(set(stems.values())) < len(stems):
            stems = {path: f"{path.resolve().parent.name}-{path.stem}" for path in paths}
        if len(set(stems.values())) < len(stems):
            raise MemdiagError("several traces would give pictures of one name", "draw them one by one, with -o")
        return {(path, name): (output or Path()) / f"{stems[path]}-{name}.png" for path, name in wanted}
    if output.suffix.lower().lstrip(".") not in _FORMS:
        raise MemdiagError(
            f"-o {output}: what it ends in names no form of picture",
            f"end it in {', '.join('.' + form for form in _FORMS)}",
        )
    if len(paths) > 1:
        raise MemdiagError(f"-o {output}: one file, and pictures of {len(paths)} traces", "name a folder")
    return {
        (path, name): output if len(kinds) == 1 else output.with_stem(f"{output.stem}-{name}") for path, name in wanted
    }


def _device(trace: Trace, number: int | None) -> DeviceTrace:
    have = ", ".join(str(each.device) for each in trace.devices) or "none"
    found = [each for each in trace.devices if number is None or each.device == number]
    if not found:
        what = "no device is" if number is None else f"device {number} is not"
        raise MemdiagError(f"{what} in {trace.path}", f"devices in it: {have}")
    chosen = max(found, key=lambda each: each.most_held_bytes)
    if len(found) > 1:
        from memdiag.cli.talk import say

        say(f"drawing device {chosen.device}, which held most of {len(found)} devices; --device chooses another")
    return chosen


def _draw(
    trace: Trace, device: DeviceTrace, kind: str, file: Path, look: PlotLook, at: str | int, wanted: SimulationRequest
) -> bytes:
    from memdiag.views.plot_frame import Ask

    form = file.suffix.lower().lstrip(".")
    wide = max((look.size[0] if look.size else look.width or 10.0) - _MARGIN, 1.0)
    simulated = _simulate(trace, device, wanted) if kind == "policies" and device.num_events else None
    data = PLOT_DATA[kind](trace, device, Ask(round(wide * (look.dpi if form == "png" else _VECTOR)), at, simulated))
    from memdiag.render import renderer
    from memdiag.render.plot.page import picture

    return picture(renderer("plot", kind), data, look, form)


def _simulate(trace: Trace, device: DeviceTrace, wanted: SimulationRequest) -> SimulatedRuns:
    from memdiag.runs.simulated_runs import simulate_runs, subject_of
    from memdiag.views.plot_policies import need_few

    subject = subject_of(trace, device)
    request = wanted.or_usual(trace)
    request.check(trace, device)
    scenarios = request.scenarios(subject)
    need_few(len(scenarios))
    return simulate_runs(subject, scenarios)


def _write(file: Path, picture: bytes, folder: Path | None) -> None:
    from memdiag.output_file import write_whole

    try:
        if folder is not None and not folder.suffix:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MemdiagError(
            f"{file}: cannot be written: {error.strerror or error}", "check the directory and its mode"
        ) from None
    write_whole(file, picture)
