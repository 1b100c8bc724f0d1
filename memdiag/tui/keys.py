"""The keys of ``memdiag view``: one table for the actions, the help, and the bottom line."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from memdiag.text import phrase


class Key(NamedTuple):
    """One row of the help.

    Attributes:
        keys: Textual's key names, with the action of each.
        shown: The keys as shown in the help.
        name: Phrase key of their effect, or "" for more keys of another row.
        brief: The keys as shown in the bottom line, or "" if not shown.
    """

    keys: tuple[tuple[str, str], ...]
    shown: str = ""
    name: str = ""
    brief: str = ""


GROUPS: tuple[tuple[str, tuple[Key, ...]], ...] = (
    (
        "time",
        (
            Key((("left", "columns(-1)"), ("right", "columns(1)")), "← →", "columns", "←→"),
            Key((("comma", "events(-1)"), ("full_stop", "events(1)")), ", .", "events"),
            Key((("shift+left", "events(-1)"), ("shift+right", "events(1)"))),
            Key((("less_than_sign", "columns(-10)"), ("greater_than_sign", "columns(10)")), "< >", "ten"),
            Key((("p", "peak"),), "p", "peak", "p"),
            Key((("o", "next('ooms')"), ("O", "previous('ooms')")), "o O", "ooms", "o"),
            Key((("r", "next('retries')"), ("R", "previous('retries')")), "r R", "retries", "r"),
            Key(
                (("right_square_bracket", "next('steps')"), ("left_square_bracket", "previous('steps')")),
                "] [",
                "steps",
                "][",
            ),
            Key((("g", "ask_event"),), "g", "go"),
            Key((("plus", "zoom(1)"), ("equals_sign", "zoom(1)"), ("minus", "zoom(-1)")), "+ -", "zoom", "+-"),
            Key((("0", "whole"),), "0", "whole"),
            Key((("h", "pan(-1)"), ("l", "pan(1)")), "h l", "pan"),
            Key((("d", "device"),), "d", "device"),
        ),
    ),
    (
        "lists",
        (
            Key((("tab", "turn(1)"), ("shift+tab", "turn(-1)")), "Tab", "list", "Tab"),
            Key(tuple((str(n), f"show({n - 1})") for n in range(1, 6))),
            Key((("up", "rows(-1)"), ("down", "rows(1)"), ("k", "rows(-1)"), ("j", "rows(1)")), "↑ ↓", "rows"),
            Key((("pageup", "pages(-1)"), ("pagedown", "pages(1)"), ("home", "first_row"), ("end", "last_row"))),
            Key((("enter", "choose"),), "Enter", "open", "Enter"),
            Key((("space", "detail"),), "Space", "detail"),
            Key((("slash", "ask_filter"),), "/", "filter", "/"),
            Key((("escape", "no_filter"),)),
            Key((("t", "by"),), "t", "by"),
            Key((("s", "order"), ("S", "backwards")), "s S", "sort", "s"),
            Key((("w", "scale"),), "w", "scale"),
            Key((("i", "invert"),), "i", "invert"),
            Key((("u", "frames"),), "u", "frames"),
            Key((("e", "unfold"),), "e", "unfold"),
            Key((("c", "copy"),), "c", "copy"),
        ),
    ),
    (
        "program",
        (
            Key((("question_mark", "help"), ("f1", "help")), "?", "help", "?"),
            Key((("q", "quit"), ("ctrl+c", "quit"), ("ctrl+q", "quit")), "q", "quit", "q"),
            Key((("ctrl+z", "suspend"),), "Ctrl+Z", "suspend"),
        ),
    ),
)
# The order in which keys are dropped from a short bottom line, and the order in which they are shown.
_FIRST = ("quit", "help", "list", "columns", "peak", "zoom", "ooms", "filter", "open", "sort", "steps", "retries")
_SHOWN = ("quit", "help", "list", "open", "filter", "sort", "columns", "zoom", "peak", "ooms", "retries", "steps")
LEGEND = ("timeline", "above", "below")


def all_keys() -> list[tuple[str, str]]:
    """Returns every key with its action."""
    return [pair for _, keys in GROUPS for key in keys for pair in key.keys]


def bottom_line(width: int) -> list[tuple[str, str]]:
    """Returns the parts of the bottom line in order.

    A part is a text, and the action of a click. As many are returned as ``width`` columns allow.
    """
    known = {key.name: key for _, keys in GROUPS for key in keys if key.brief}
    words = {name: f"{key.brief} {phrase(f'screen.brief.{name}')}" for name, key in known.items()}
    kept: set[str] = set()
    room = width
    for name in _FIRST:
        if cell_len(words[name]) <= room:
            kept.add(name)
            room -= cell_len(words[name]) + 2
    return [(words[name], known[name].keys[-1 if name == "columns" else 0][1]) for name in _SHOWN if name in kept]


def help_text() -> Text:
    """Returns the help text of all keys."""
    text = Text()
    for group, keys in GROUPS:
        text.append(phrase(f"screen.group.{group}") + "\n", "bold")
        for key in keys:
            if key.shown:
                text.append(f"  {key.shown:<7}", "bold").append(phrase(f"screen.key.{key.name}") + "\n")
        text.append("\n")
    for where in LEGEND:
        text.append(set_cell_size(phrase(f"screen.legend.{where}"), 10), "bold").append(
            phrase(f"screen.legend.{where}-words") + "\n"
        )
    return text
