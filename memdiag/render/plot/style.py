"""How plots look: themes, scales, fonts and sizes. The colours of data come from ``memdiag.vocabulary``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from memdiag.errors import MemdiagError
from memdiag.text import Language, language, phrase, plain, shorten
from memdiag.units import GIB, KIB, MIB, TIB
from memdiag.vocabulary import LINES, STYLES, Kind

THEMES = ("light", "dark")
_DPI = (40, 1200)
_MOST_PIXELS = 100_000_000
NARROWEST = 2.5  # inches
COMPACT = 5.0  # inches: a narrower page has smaller text and margins, for one column of a paper
_UNITS = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "B"))
_STEPS = (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10, 20, 25, 50, 100, 200, 250)
_MOST_TICKS = 6
# Bundled with matplotlib, so that text looks the same on every machine. Missing characters are searched in these fonts,
# if installed.
_FONT = "DejaVu Sans"
_MORE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
)


CHINESE = "内存预留"  # characters that a font for Chinese has


class Fill(NamedTuple):
    """How an area is filled.

    Attributes:
        color: Colour of the area, or of its hatch lines if ``is_line``.
        hatch: Hatch in matplotlib's notation, or "" for none.
        is_line: Whether the area is paper with a coloured hatch: free memory, which contains no data.
    """

    color: str
    hatch: str = ""
    is_line: bool = False


@dataclass(frozen=True)
class Theme:
    """Colours of everything but data."""

    paper: str
    ink: str
    muted: str
    grid: str
    hatch: str


@dataclass(frozen=True)
class PlotLook:
    """The style of a plot.

    Attributes:
        size: Inches, width and height, or None for the kind's default.
        width: Inches, if only the width is given: the height follows from the content.
        dpi: Pixels per inch.
        style: One of THEMES.
        title: Title, or None for the kind's own.
    """

    size: tuple[float, float] | None = None
    dpi: int = 160
    style: str = "light"
    title: str | None = None
    width: float | None = None

    @property
    def theme(self) -> Theme:
        """Its colours."""
        if self.style == "dark":
            return Theme("#15181c", "#eceff1", "#a7adb5", "#363b42", "#15181c")
        return Theme("#ffffff", "#1b1b1b", "#5f6368", "#dcdcdc", "#ffffff")


PHASES = {key: Fill(style.color, style.hatch) for key, style in STYLES["phase"].items() if key != "unknown"}

GREY_PHASES = {
    "initialisation": Fill("#9a9a9a", "...."),
    "forward": Fill("#e3e3e3"),
    "backward": Fill("#b0b0b0", "////"),
    "optimizer": Fill("#5c5c5c", "xxxx"),
    "outside": Fill("#f4f4f4", ""),
}


def fills(kind: Kind) -> dict[str, Fill]:
    """Returns how the classes of a kind are filled."""
    return {key: Fill(style.color, style.hatch) for key, style in STYLES[kind].items()}


def lines() -> tuple[tuple[str, Any], ...]:
    """Returns colours and dash patterns of curves, each of which distinguishes them."""
    dashes: tuple[Any, ...] = (
        "-",
        (0, (5, 1.6)),
        (0, (1.2, 1.2)),
        (0, (6, 1.5, 1.2, 1.5)),
        (0, (3, 1.2)),
        (0, (8, 2, 1.2, 2, 1.2, 2)),
    )
    return tuple(
        (color, dashes[(number + number // len(LINES)) % len(dashes)]) for number, color in enumerate(LINES * 3)
    )


class Scale(NamedTuple):
    """An axis of bytes: ticks every ``step`` of ``unit`` (``unit_bytes`` each)."""

    step: float
    unit: str
    unit_bytes: int

    def label(self, value: float) -> str:
        """Returns the label of a tick, without the unit."""
        return f"{value / self.unit_bytes:.10g}"


def scale_for(highest: float, most: int = _MOST_TICKS) -> Scale:
    """Returns the scale for amounts up to ``highest`` bytes, with at most ``most`` ticks above 0."""
    size, name = next((known for known in _UNITS if highest >= known[0]), _UNITS[-1])
    step = next((step for step in _STEPS if highest <= most * step * size), 500.0)
    while highest > most * step * size:
        step *= 2
    return Scale(step, name, size)


def settings(theme: Theme, fonts: list[str]) -> dict[str, Any]:
    """Returns matplotlib's settings.

    Text remains text in SVG and PDF, and formulas and machine settings are ignored.
    """
    return {
        "font.family": fonts,
        "font.size": 9,
        "text.parse_math": False,
        "text.color": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.edgecolor": theme.muted,
        "axes.facecolor": theme.paper,
        "axes.linewidth": 0.8,
        "axes.unicode_minus": False,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "xtick.labelcolor": theme.ink,
        "ytick.labelcolor": theme.ink,
        "figure.facecolor": theme.paper,
        "savefig.facecolor": theme.paper,
        "legend.frameon": False,
        "legend.labelcolor": theme.ink,
        "hatch.linewidth": 0.7,
        "pdf.fonttype": 42,
        "svg.fonttype": "none",
        "svg.hashsalt": "memdiag",
        "path.simplify": True,
        "agg.path.chunksize": 20_000,
    }


def fonts_for(text: str) -> list[str]:
    """Returns the fonts for ``text``: also a second one if the first lacks characters and this machine has one."""
    if all(ord(char) in _characters(_FONT) for char in text):
        return [_FONT]
    from matplotlib import font_manager

    there = set(font_manager.get_font_names())
    return [_FONT, *(name for name in _MORE_FONTS if name in there)][:2]


def drawn_language() -> Language:
    """Returns the active language if this machine has a font for it, else English, so no text is drawn as boxes."""
    return language() if language() == "en" or len(fonts_for(CHINESE)) > 1 else "en"


def drawable(text: str, fonts: list[str], limit: int = 0) -> str:
    """Returns ``text`` on one line without control characters; characters without a font are escaped."""
    shown = "".join(
        char
        if any(ord(char) in _characters(font) for font in fonts)
        else char.encode("ascii", "backslashreplace").decode("ascii")
        for char in plain(text)
    )
    return shorten(shown, limit) if limit else shown


@cache
def _characters(font: str) -> frozenset[int]:
    from matplotlib import font_manager

    try:
        found = font_manager.findfont(font, fallback_to_default=False)
    except ValueError:
        return frozenset()
    return frozenset(font_manager.get_font(found).get_charmap())


def read_look(size: str | None, width: str | None, dpi: int, style: str, title: str | None) -> PlotLook:
    """Returns the look of pictures, given as the options of ``memdiag plot``.

    Raises:
        MemdiagError: One of them cannot be drawn.
    """
    if style not in THEMES:
        raise MemdiagError(
            phrase("errors.style", style=str(style)), phrase("errors.style.hint", value=", ".join(THEMES))
        )
    if not _DPI[0] <= dpi <= _DPI[1]:
        raise MemdiagError(
            phrase("errors.dpi", dpi=str(dpi), value=str(_DPI[0]), value2=str(_DPI[1])), phrase("errors.dpi.hint")
        )
    if size is not None and width is not None:
        raise MemdiagError(phrase("errors.size-width"), phrase("errors.size-width.hint"))
    inches = parse_size(size) if size is not None else None
    wide = parse_width(width) if width is not None else None
    if wide is not None and wide * wide * dpi * dpi > _MOST_PIXELS:
        raise MemdiagError(
            phrase("errors.width-pixels", width=str(width), dpi=str(dpi), value=str(_MOST_PIXELS // 1_000_000)),
            phrase("errors.pixels.hint"),
        )
    if inches is not None and inches[0] * inches[1] * dpi * dpi > _MOST_PIXELS:
        raise MemdiagError(
            phrase("errors.size-pixels", size=str(size), dpi=str(dpi), value=str(_MOST_PIXELS // 1_000_000)),
            phrase("errors.pixels.hint"),
        )
    return PlotLook(inches, dpi, style, title, wide)


def parse_size(text: str) -> tuple[float, float]:
    """Returns width and height in inches from ``10x5.6``; ``16x9cm`` is in centimetres.

    Raises:
        MemdiagError: It is not a size, or cannot be drawn.
    """
    given = text.strip().lower().replace("\N{MULTIPLICATION SIGN}", "x").replace(" ", "")
    factor = 1 / 2.54 if given.endswith("cm") else 1.0
    width, _, height = given.removesuffix("cm").removesuffix("in").partition("x")
    try:
        size = (float(width) * factor, float(height) * factor)
    except ValueError:
        raise MemdiagError(phrase("errors.plot-size", text=str(text)), phrase("errors.size-inches")) from None
    if not (NARROWEST <= size[0] <= 60 and 1.5 <= size[1] <= 60):
        raise MemdiagError(
            phrase("errors.size-range", text=str(text), narrowest=f"{NARROWEST:g}"),
            phrase("errors.size-inches"),
        )
    return size


def parse_width(text: str) -> float:
    """Returns a width in inches from ``3.5``, ``3.5in`` or ``88mm``.

    Raises:
        MemdiagError: It is not a width, or cannot be drawn.
    """
    given = text.strip().lower()
    unit = next((unit for unit in ("cm", "mm", "in") if given.endswith(unit)), "")
    try:
        width = float(given.removesuffix(unit)) / {"cm": 2.54, "mm": 25.4}.get(unit, 1.0)
    except ValueError:
        raise MemdiagError(phrase("errors.plot-width", text=str(text)), phrase("errors.plot-width.hint")) from None
    if not NARROWEST <= width <= 60:
        raise MemdiagError(
            phrase("errors.width-range", text=str(text), narrowest=f"{NARROWEST:g}"), phrase("errors.width-range.hint")
        )
    return width
