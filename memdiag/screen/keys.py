"""The keys of ``memdiag view``: one table for what they do, the help, and the line at the bottom."""

from __future__ import annotations

from typing import NamedTuple

from rich.text import Text


class Key(NamedTuple):
    """One row of the help.

    Attributes:
        keys: Names of keys as textual has them, with the action of each.
        shown: The keys as people write them.
        words: What they do.
        brief: A word for the line at the bottom; "": not there.
    """

    keys: tuple[tuple[str, str], ...]
    shown: str
    words: str
    brief: str = ""


GROUPS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    (
        "Time",
        (
            Key((("left", "columns(-1)"), ("right", "columns(1)")), "← →", "one column of the timeline back, on", "←→ time"),
            Key((("comma", "events(-1)"), ("full_stop", "events(1)")), ", .", "one event back, on (also Shift with ← →)"),
            Key((("shift+left", "events(-1)"), ("shift+right", "events(1)")), "", ""),
            Key((("less_than_sign", "columns(-10)"), ("greater_than_sign", "columns(10)")), "< >", "ten columns back, on"),
            Key((("p", "peak"),), "p", "the peak, then the reserved and the allocated peak", "p peak"),
            Key((("o", "next('ooms')"), ("O", "previous('ooms')")), "o O", "next, previous out-of-memory event", "o OOM"),
            Key((("r", "next('retries')"), ("R", "previous('retries')")), "r R", "next, previous retry", "r retry"),
            Key(
                (("right_square_bracket", "next('steps')"), ("left_square_bracket", "previous('steps')")),
                "] [",
                "next, previous step",
                "][ step",
            ),
            Key((("g", "ask_event"),), "g", "go to an event, 50%, step 3, start, end"),
            Key((("plus", "zoom(1)"), ("equals_sign", "zoom(1)"), ("minus", "zoom(-1)")), "+ -", "zoom in, out (mouse: wheel)", "+- zoom"),
            Key((("0", "whole"),), "0", "the whole trace"),
            Key((("h", "pan(-1)"), ("l", "pan(1)")), "h l", "pan the timeline; the moment stays"),
            Key((("d", "device"),), "d", "next device"),
        ),
    ),
    (
        "Lists",
        (
            Key((("tab", "turn(1)"), ("shift+tab", "turn(-1)")), "Tab", "next list; 1 to 5: that one", "Tab list"),
            Key(tuple((str(n), f"show({n - 1})") for n in range(1, 6)), "", ""),
            Key((("up", "rows(-1)"), ("down", "rows(1)"), ("k", "rows(-1)"), ("j", "rows(1)")), "↑ ↓", "row (also PgUp, PgDn, Home, End)"),
            Key((("pageup", "pages(-1)"), ("pagedown", "pages(1)"), ("home", "first_row"), ("end", "last_row")), "", ""),
            Key((("enter", "choose"),), "Enter", "all on a row; in Calls and Map: open, close", "Enter open"),
            Key((("space", "detail"),), "Space", "all on a row, in every list"),
            Key((("slash", "ask_filter"),), "/", "only what holds these words (>64MiB: sizes); Esc: all", "/ filter"),
            Key((("escape", "no_filter"),), "", ""),
            Key((("t", "by"),), "t", "colours and totals by category, by lifetime"),
            Key((("s", "order"), ("S", "backwards")), "s S", "order by the next column, the other way about", "s sort"),
            Key((("w", "scale"),), "w", "Map: segments to one scale, or each as wide as the list"),
            Key((("i", "invert"),), "i", "Calls: inverted, from the allocation outwards"),
            Key((("u", "frames"),), "u", "Calls: your own frames, all of Python, all"),
            Key((("e", "unfold"),), "e", "Calls: open the path of most bytes, or close all"),
            Key((("c", "copy"),), "c", "Findings: copy the line that helps (printed at the end, too)"),
        ),
    ),
    (
        "Program",
        (
            Key((("question_mark", "help"), ("f1", "help")), "?", "this help", "? help"),
            Key((("q", "quit"), ("ctrl+c", "quit"), ("ctrl+q", "quit")), "q", "end", "q quit"),
            Key((("ctrl+z", "suspend"),), "Ctrl+Z", "back to the shell; fg returns"),
        ),
    ),
)
# The order in which keys are kept where the line at the bottom is short.
_FIRST = ("q quit", "? help", "Tab list", "←→ time", "p peak", "+- zoom", "o OOM", "/ filter", "Enter open", "s sort", "][ step", "r retry")
_SHOWN = ("q quit", "? help", "Tab list", "Enter open", "/ filter", "s sort", "←→ time", "+- zoom", "p peak", "o OOM", "r retry", "][ step")
LEGEND = (
    ("Timeline", "blue █ allocated, orange ▒ freed but waiting, grey ░ reserved but free"),
    ("above it", "▼ peak  ! out of memory  r retry"),
    ("below it", "i initialisation  F forward  B backward  O optimizer  - between  |3 step 3"),
)


def all_keys() -> list[tuple[str, str]]:
    """Returns every key with its action."""
    return [pair for _, keys in GROUPS for key in keys for pair in key.keys]


def bottom_line(width: int) -> list[tuple[str, str]]:
    """Returns what the line at the bottom says, in order: words, and the action of a click; as much as ``width`` columns hold."""
    actions = {key.brief: key.keys[-1][1] if key.brief == "←→ time" else key.keys[0][1] for _, keys in GROUPS for key in keys if key.brief}
    kept: set[str] = set()
    room = width
    for brief in _FIRST:
        if len(brief) <= room:
            kept.add(brief)
            room -= len(brief) + 2
    return [(brief, actions[brief]) for brief in _SHOWN if brief in kept]


def help_text() -> Text:
    """Returns all keys with what they do."""
    text = Text()
    for title, keys in GROUPS:
        text.append(title + "\n", "bold")
        for key in keys:
            if key.shown:
                text.append(f"  {key.shown:<7}", "bold").append(key.words + "\n")
        text.append("\n")
    for where, words in LEGEND:
        text.append(f"{where:<9} ", "bold").append(words + "\n")
    return text
