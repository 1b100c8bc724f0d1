"""Pictures of a trace, as ``memdiag plot`` draws them: which ones, into which files, and their content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.views.plots import PLOT_DATA

if TYPE_CHECKING:
    from memdiag.render.plot.style import PlotLook
    from memdiag.runs.scenarios import SimulationRequest
    from memdiag.trace.model import DeviceTrace, Trace

_FORMS = ("png", "svg", "pdf")
_MARGIN = 1.1  # inches on both sides of the panel
_VECTOR = 72  # columns per inch in formats without pixels: one per typographic point


def read_kinds(given: Sequence[str]) -> list[str]:
    """Returns the kinds of pictures named in ``given``; one text may hold several names, separated by commas.

    Raises:
        MemdiagError: A kind is unknown.
    """
    names = [name.strip() for item in given for name in item.split(",") if name.strip()] or ["timeline"]
    for name in names:
        if name not in PLOT_DATA:
            close = get_close_matches(name.lower(), PLOT_DATA, 1, 0.6)
            raise MemdiagError(
                phrase("errors.kind", name=str(name)),
                phrase(
                    "errors.kind.hint",
                    meant=phrase("errors.meant", name=close[0]) if close else "",
                    kinds=", ".join(PLOT_DATA),
                ),
            )
    return list(dict.fromkeys(names))


def files_of(paths: Sequence[Path], kinds: Sequence[str], output: Path | None) -> dict[tuple[Path, str], Path]:
    """Returns the file of each picture, by trace and kind.

    Args:
        paths: The traces.
        kinds: The kinds of picture.
        output: A picture, or a folder; None: the current folder.

    Raises:
        MemdiagError: Two pictures would have one file, or the file is of another form.
    """
    wanted = [(path, name) for path in paths for name in kinds]
    is_folder = output is not None and (output.is_dir() or not output.suffix)
    if output is None or is_folder:
        stems = {path: path.stem for path in paths}
        if len(set(stems.values())) < len(stems):
            stems = {path: f"{path.resolve().parent.name}-{path.stem}" for path in paths}
        if len(set(stems.values())) < len(stems):
            raise MemdiagError(phrase("errors.picture-names"), phrase("errors.picture-names.hint"))
        return {(path, name): (output or Path()) / f"{stems[path]}-{name}.png" for path, name in wanted}
    if output.suffix.lower().lstrip(".") not in _FORMS:
        raise MemdiagError(
            phrase("errors.picture-ending", output=str(output)),
            phrase("errors.picture-ending.hint", value=", ".join("." + form for form in _FORMS)),
        )
    if len(paths) > 1:
        raise MemdiagError(
            phrase("errors.picture-one", output=str(output), value=str(len(paths))), phrase("errors.picture-one.hint")
        )
    return {
        (path, name): output if len(kinds) == 1 else output.with_stem(f"{output.stem}-{name}") for path, name in wanted
    }


def choose_drawn(trace: Trace, number: int | None = None, say: Callable[[str], None] = lambda _: None) -> DeviceTrace:
    """Returns the device to draw: that of a number, or the one that held most.

    Args:
        trace: The trace.
        number: The device; None: the one with the most memory.
        say: Receives one line if a device was chosen among several.

    Raises:
        MemdiagError: There is none.
    """
    have = ", ".join(str(each.device) for each in trace.devices) or phrase("errors.devices.none")
    found = [each for each in trace.devices if number is None or each.device == number]
    if not found:
        missing = (
            phrase("errors.without-device", path=trace.path)
            if number is None
            else phrase("errors.no-device.path", path=trace.path, number=str(number))
        )
        raise MemdiagError(missing, phrase("errors.devices", have=have))
    chosen = max(found, key=lambda each: each.most_held_bytes)
    if len(found) > 1:
        say(phrase("progress.device.drawing", device=str(chosen.device), count=len(found)))
    return chosen


def draw(
    trace: Trace,
    device: DeviceTrace,
    kind: str,
    form: str,
    look: PlotLook,
    at: str | int,
    request: SimulationRequest,
) -> bytes:
    """Returns a picture.

    Args:
        trace, device: The trace and the device to draw.
        kind: Key of ``PLOT_DATA``.
        form: "png", "svg" or "pdf".
        look: How it is drawn.
        at: Its moment, as for ``build_report``.
        request: The runs that the picture of policies simulates.

    Raises:
        MemdiagError: The trace lacks what this picture shows.
    """
    from memdiag.render import renderer
    from memdiag.render.plot.page import picture
    from memdiag.runs.simulated_runs import simulate_request
    from memdiag.views.plot_frame import Ask
    from memdiag.views.plot_policies import need_few

    wide = max((look.size[0] if look.size else look.width or 10.0) - _MARGIN, 1.0)
    simulated = None
    if kind == "policies" and device.num_events:
        simulated = simulate_request(trace, device, request.or_usual(trace), need_few)
    data = PLOT_DATA[kind](trace, device, Ask(round(wide * (look.dpi if form == "png" else _VECTOR)), at, simulated))
    return picture(renderer("plot", kind), data, look, form)


def write_picture(file: Path, content: bytes, folder: Path | None = None) -> None:
    """Writes a picture; the folder is made if it is missing.

    Raises:
        MemdiagError: It cannot be written.
    """
    from memdiag.output_file import write_whole

    try:
        if folder is not None and not folder.suffix:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MemdiagError(
            phrase("errors.unwritable", file=str(file), value=str(error.strerror or error)),
            phrase("errors.directory-mode"),
        ) from None
    write_whole(file, content)
