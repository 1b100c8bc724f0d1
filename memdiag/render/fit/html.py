"""The result of ``memdiag fit`` as a web page: the answer for each device, curves, and the table of configurations."""

from __future__ import annotations

from collections.abc import Iterator

from memdiag import vocabulary
from memdiag.render.fit import words
from memdiag.render.support.look import PLAIN, Look
from memdiag.render.support.pages import Markup, Section, page, swatch, table, tag, tile
from memdiag.render.support.pages.plots import PlotLine, curves
from memdiag.results.fit import FAILS, FITS, TIGHT, FitCell, FitReport, GridAxis
from memdiag.text import phrase, sentence
from memdiag.units import format_bytes

_CLASSES = {FITS: "ok", TIGHT: "warning", FAILS: "critical"}
_MOST_LINES = 8  # of a plot
_MOST_PLOTS = 6
_LEVEL = "6 4"  # dashes of the lines of usable memory


def render(report: FitReport, look: Look = PLAIN) -> str:  # noqa: ARG001 - a page looks the same everywhere
    """Returns the report as a page."""
    headline = [tag("h1", said) for said in (words.closest(report) or words.verdicts(report))[:1]]
    headline.append(tag("div", *_tiles(report), class_="numbers"))
    return page(phrase("fit.page", command=report.command), headline, list(_sections(report)))


def _tiles(report: FitReport) -> Iterator[Markup]:
    for number, device in enumerate(report.devices):
        fits = len(report.fitting(number))
        usable = phrase("fit.usable", device=device.name)
        yield tile(device.name, f"{fits} / {len(report.cells)}", f"{format_bytes(device.usable_bytes)} {usable}")


def _sections(report: FitReport) -> Iterator[Section]:
    said = [tag("li", sentence(text)) for text in (*words.verdicts(report), *words.closest(report))]
    yield Section("answer", phrase("fit.title.answer"), [tag("ul", *said), _largest(report)])
    for axis in [axis for axis in report.axes if axis.is_growing and len(axis.values) > 1]:
        drawn = list(_plots(report, axis))
        if drawn:
            yield Section(f"over-{axis.name}", phrase("fit.title.curves", name=axis.name), drawn)
    if (found := words.front(report)) is not None:
        titles, points = found
        drawn = [tag("p", phrase("fit.front.meaning")), *_front(report), table(titles, points, range(len(titles) - 1))]
        yield Section("front", phrase("fit.title.front"), drawn)
    yield Section("cells", phrase("fit.title.table"), [_table(report), *_errors(report)])
    notes = [words.runs(report), *report.notes]
    yield Section(
        "notes", phrase("fit.title.notes"), [tag("ul", *(tag("li", sentence(note)) for note in notes), class_="notes")]
    )


def _largest(report: FitReport) -> Markup:
    """Returns the largest configurations that fit on each device: no larger value on any growing axis fits."""
    head = [phrase(f"fit.columns.{name}") for name in ("device", "usable", "fits", "largest")]
    rows = []
    for number, device in enumerate(report.devices):
        names = [tag("div", tag("code", report.label(cell.values))) for cell in words.largest(report, number)]
        fits = f"{len(report.fitting(number))} / {len(report.cells)}"
        rows.append((device.name, format_bytes(device.usable_bytes), fits, tag("div", *names)))
    return table(head, rows, (1, 2))


def _plots(report: FitReport, axis: GridAxis) -> Iterator[Markup]:
    """Draws the reserved peaks of the runs over one axis, with the usable memory of each device as a level line."""
    place = report.axes.index(axis)
    groups: dict[tuple[str, ...], dict[int, int]] = {}
    for cell in report.cells:
        peak = _peak(cell)
        if peak is not None:
            rest = cell.values[:place] + cell.values[place + 1 :]
            groups.setdefault(rest, {})[axis.values.index(cell.values[place])] = peak
    names = [other.name for other in report.axes if other is not axis]
    shown = [(rest, points) for rest, points in groups.items() if len(points) > 1]
    ticks = [((at + 0.5) / len(axis.values), value) for at, value in enumerate(axis.values)]
    for start in range(0, min(len(shown), _MOST_LINES * _MOST_PLOTS), _MOST_LINES):
        lines = [
            PlotLine(
                " ".join(f"{name}={value}" for name, value in zip(names, rest, strict=True)) or axis.name,
                vocabulary.LINES[at % len(vocabulary.LINES)],
                "",
                _between(points, len(axis.values)),
            )
            for at, (rest, points) in enumerate(shown[start : start + _MOST_LINES])
        ]
        levels = [
            PlotLine(
                phrase("fit.usable", device=device.name), "var(--muted)", _LEVEL, [device.usable_bytes] * len(ticks)
            )
            for device in report.devices
        ]
        yield curves([*lines, *levels], ticks)
        yield tag(
            "p", *(tag("span", swatch(line.color), f"{line.name} ", class_="key") for line in lines), class_="legend"
        )


def _front(report: FitReport) -> Iterator[Markup]:
    """Draws the smallest device over what is processed at a time, a line for each cost of recomputation."""
    at_once = sorted({point.at_once for point in report.front if point.at_once is not None})
    if len(at_once) < 2:
        return
    groups: dict[tuple[str, float | None], dict[int, int]] = {}
    for point in report.front:
        if point.at_once is not None:
            sizes = groups.setdefault((point.device, point.extra_forward_passes), {})
            place = at_once.index(point.at_once)
            sizes[place] = min(point.smallest_total_bytes, sizes.get(place, point.smallest_total_bytes))
    lines = []
    for at, ((device, passes), sizes) in enumerate(groups.items()):
        backend = device.partition(":")[0]
        name = backend if passes is None else phrase("fit.front.line", backend=backend, passes=f"{passes:g}")
        color = vocabulary.LINES[at % len(vocabulary.LINES)]
        lines.append(PlotLine(name, color, "", _between(sizes, len(at_once))))
    ticks = [((at + 0.5) / len(at_once), f"{size:,}") for at, size in enumerate(at_once)]
    levels = [
        PlotLine(device.name, "var(--muted)", _LEVEL, [device.total_bytes] * len(ticks)) for device in report.devices
    ]
    yield curves([*lines, *levels], ticks)
    yield tag("p", *(tag("span", swatch(line.color), f"{line.name} ", class_="key") for line in lines), class_="legend")


def _between(points: dict[int, int], count: int) -> list[int]:
    """Returns a value for each place: measured ones, straight lines between them, and -1 outside."""
    values = [-1] * count
    known = sorted(points)
    for at in range(known[0], known[-1] + 1):
        low = max(place for place in known if place <= at)
        high = min(place for place in known if place >= at)
        share = 0.0 if high == low else (at - low) / (high - low)
        values[at] = round(points[low] + share * (points[high] - points[low]))
    return values


def _peak(cell: FitCell) -> int | None:
    return max((rank.peak_reserved_bytes for rank in cell.ranks), default=None)


def _table(report: FitReport) -> Markup:
    head = [
        *(axis.name for axis in report.axes),
        phrase("fit.head.allocated"),
        phrase("fit.head.reserved"),
        *(device.name for device in report.devices),
        phrase("fit.columns.trace"),
    ]
    rows = []
    for cell in report.cells:
        outcomes = [tag("span", words.outcome(on), class_=f"badge {_CLASSES.get(on.outcome, '')}") for on in cell.on]
        trace = next((on.trace for on in cell.on if on.trace), "")
        command = tag("code", f"memdiag analyze {trace}")
        opened = tag("details", tag("summary", phrase("fit.columns.open")), command) if trace else ""
        rows.append((*cell.values, *words.peaks(cell), *outcomes, opened))
    return table(head, rows, range(len(report.axes) + 2))


def _errors(report: FitReport) -> Iterator[Markup]:
    failed = [cell for cell in report.cells if cell.error]
    if failed:
        yield tag("h3", phrase("fit.errors"))
        yield table(
            ("", ""), [(report.label(cell.values), tag("code", f"{cell.error} ({cell.output})")) for cell in failed]
        )
