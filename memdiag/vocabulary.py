"""The words and colours of memdiag's concepts: categories, lifetimes, phases, parts of reserved memory, curves.

The HTML report, the plots, the terminal and the viewer take both from here, so a concept looks and reads the same
everywhere. Its words are in ``messages/vocabulary.json`` (see ``memdiag.text``).

The colours use the hues of Okabe and Ito (Color Universal Design, 2008). Their lightness is spread, so any two classes
of one kind also differ for people with any colour blindness and on a grey print (tests/test_vocabulary.py measures
both). Free memory also has a hatch, and so have some adjacent classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from memdiag.text import Phrase, catalogue, phrase

Kind = Literal["category", "lifetime", "phase", "part", "curve", "card"]

BLUE, SKY, VERMILLION, ORANGE, GREEN, PURPLE, YELLOW, GREY, BROWN = (
    "#387dcb",
    "#94c9fd",
    "#e36019",
    "#eba80e",
    "#40b98b",
    "#8d5c96",
    "#f4e846",
    "#8f979f",
    "#8b523c",
)
CRIMSON, VIOLET, INDIGO = "#d41e3a", "#903295", "#6a05e4"
FAILURE, RETRY = CRIMSON, ORANGE  # an out-of-memory error, and a request that was served after a retry
# colours of several runs in one chart; the runs also differ in their dash patterns
LINES = (
    BLUE,
    VERMILLION,
    GREEN,
    PURPLE,
    ORANGE,
    SKY,
    BROWN,
)
# The nearest colour that every terminal has and shows readably on its default background.
_ANSI = {
    BLUE: "blue",
    SKY: "cyan",
    VERMILLION: "red",
    ORANGE: "yellow",
    GREEN: "green",
    PURPLE: "magenta",
    YELLOW: "bright_yellow",
    GREY: "bright_black",
    BROWN: "yellow",
    CRIMSON: "red",
    VIOLET: "magenta",
    INDIGO: "blue",
}


class Style(NamedTuple):
    """How a class is drawn.

    Attributes:
        color: ``#rrggbb``, for light and dark backgrounds.
        hatch: Hatch in matplotlib's notation, or "" for none.
        glyph: One character for text bars.
    """

    color: str
    hatch: str = ""
    glyph: str = "█"


STYLES: Mapping[Kind, Mapping[str, Style]] = {
    "category": {
        "parameter": Style(BLUE),
        "gradient": Style(VERMILLION, "////"),
        "optimizer_state": Style(SKY, "\\\\\\\\"),
        "activation": Style(ORANGE),
        "input": Style(GREEN, "...."),
        "temporary": Style(YELLOW),
        "collective": Style(PURPLE, "xxxx"),
        "workspace": Style(BROWN),
        "kv_cache": Style(INDIGO, "++++"),
        "unknown": Style(GREY),
    },
    # Long-lived classes come first: they are at the bottom of a stack, short-lived ones at its top.
    "lifetime": {
        "persistent": Style(BLUE),
        "optimizer_state": Style(SKY, "\\\\\\\\"),
        "survives_step": Style(VERMILLION, "xxxx"),
        "forward_to_backward": Style(ORANGE),
        "within_step": Style(GREEN, "////"),
        "within_phase": Style(PURPLE, "...."),
        "temporary": Style(YELLOW),
        "unknown": Style(GREY),
    },
    "phase": {
        "initialisation": Style(SKY, "...."),
        "forward": Style(GREEN),
        "backward": Style(ORANGE, "////"),
        "optimizer": Style(PURPLE, "xxxx"),
        "outside": Style(GREY),
        "unknown": Style(GREY, glyph="·"),
    },
    # In the order of the bar: requested bytes, losses, usable free bytes.
    "part": {
        "requested": Style(GREEN),
        "rounding": Style(SKY, glyph="▓"),
        "pending": Style(ORANGE, "....", "▒"),
        "stranded": Style(CRIMSON, "////", "▚"),
        "foreign": Style(VIOLET, "\\\\\\\\", "░"),
        "cache": Style(GREY, "..", "·"),
    },
    "curve": {
        "reserved": Style(GREY, glyph="░"),
        "active": Style(ORANGE, "....", "▒"),
        "allocated": Style(BLUE),
        "requested": Style(GREEN),
    },
    # Memory of a card that is in use, from the bottom of a stack up.
    "card": {
        "reserved": Style(BLUE),
        "own_outside": Style(ORANGE, "////", "▓"),
        "other_processes": Style(PURPLE, "xxxx", "▒"),
        "unknown": Style(GREY, "....", "░"),
    },
}


def color(kind: Kind, key: str) -> str:
    """Returns the colour of a class as ``#rrggbb``, or the grey of ``unknown`` for a key without a colour."""
    return STYLES[kind].get(key, Style(GREY)).color


def ansi(kind: Kind, key: str) -> str:
    """Returns the terminal colour of a class, such as ``blue``."""
    return _ANSI[color(kind, key)]


def name(kind: Kind, key: str) -> str:
    """Returns the name of a class in the active language, or the key as words if it has no name."""
    return _phrase(f"{kind}.{key}") or key.replace("_", " ")


def meaning(kind: Kind, key: str) -> str:
    """Returns the meaning of a class as half a sentence in the active language, or "" if its name is enough."""
    return _phrase(f"{kind}.{key}.means")


def action(key: str) -> str:
    """Returns the name of a trace event's action (a word of ``trace.schema.ACTIONS``) in the active language."""
    return _phrase(f"action.{key}") or key.replace("_", " ")


def lifetime(key: str, *, is_inferred: bool) -> str:
    """Returns the name of one tensor's lifetime, and whether it was inferred from earlier steps."""
    known = name("lifetime", key)
    return phrase("vocabulary.inferred_lifetime", lifetime=known, basis=earlier_steps()) if is_inferred else known


def earlier_steps() -> Phrase:
    """Returns how the lifetime of a tensor that is live at the end of the trace was inferred."""
    return phrase("vocabulary.basis.earlier_steps")


def actions() -> list[str]:
    """Returns the actions that have names."""
    return [key.removeprefix("action.") for key in catalogue("vocabulary") if key.startswith("action.")]


# Kinds of moments that are not single events.
NAMED_MOMENTS = ("oom", "peak", "allocated", "reserved", "end", "snapshot")


def when(moment: str) -> Phrase:
    """Returns a kind of moment (``memdiag.trace.moments``) as words: ``at the peak``, ``when memory ran out``."""
    return phrase(f"vocabulary.when.{moment}")


def title(moment: str) -> Phrase:
    """Returns the title of a kind of moment: ``peak``, ``out of memory``, ``chosen event``."""
    return phrase(f"vocabulary.moment.{moment}")


def _phrase(key: str) -> str:
    return phrase(f"vocabulary.{key}") if key in catalogue("vocabulary") else ""
