"""The keys of ``memdiag view``: one table for the actions, the help, and the bottom line."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from memdiag.text import phrase


class KeyHelp(NamedTuple):
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


GROUPS: tuple[tuple[str, tuple[KeyHelp, ...]], ...] = (
    (
        "time",
        (
            KeyHelp((("left", "columns(-1)"), ("right", "columns(1)")), "← →", "columns", "←→"),
            KeyHelp((("comma", "events(-1)"), ("full_stop", "events(1)")), ", .", "events"),
            KeyHelp((("shift+left", "events(-1)"), ("shift+right", "events(1)"))),
            KeyHelp((("less_than_sign", "columns(-10)"), ("greater_than_sign", "columns(10)")), "< >", "ten"),
            KeyHelp((("p", "peak"),), "p", "peak", "p"),
            KeyHelp((("o", "next('ooms')"), ("O", "previous('ooms')")), "o O", "ooms", "o"),
            KeyHelp((("r", "next('retries')"), ("R", "previous('retries')")), "r R", "retries", "r"),
            KeyHelp(
                (("right_square_bracket", "next('steps')"), ("left_square_bracket", "previous('steps')")),
                "] [",
                "steps",
                "][",
            ),
            KeyHelp((("g", "ask_event"),), "g", "go"),
            KeyHelp((("plus", "zoom(1)"), ("equals_sign", "zoom(1)"), ("minus", "zoom(-1)")), "+ -", "zoom", "+-"),
            KeyHelp((("0", "whole"),), "0", "whole"),
            KeyHelp((("h", "pan(-1)"), ("l", "pan(1)")), "h l", "pan"),
            KeyHelp((("d", "device"),), "d", "device"),
        ),
    ),
    (
        "lists",
        (
            KeyHelp((("tab", "turn(1)"), ("shift+tab", "turn(-1)")), "Tab", "list", "Tab"),
            KeyHelp(tuple((str(n), f"show({n - 1})") for n in range(1, 7))),
            KeyHelp((("up", "rows(-1)"), ("down", "rows(1)"), ("k", "rows(-1)"), ("j", "rows(1)")), "↑ ↓", "rows"),
            KeyHelp((("pageup", "pages(-1)"), ("pagedown", "pages(1)"), ("home", "first_row"), ("end", "last_row"))),
            KeyHelp((("enter", "choose"),), "Enter", "open", "Enter"),
            KeyHelp((("space", "detail"),), "Space", "detail"),
            KeyHelp((("slash", "ask_filter"),), "/", "filter", "/"),
            KeyHelp((("escape", "no_filter"),)),
            KeyHelp((("t", "by"),), "t", "by"),
            KeyHelp((("s", "order"), ("S", "backwards")), "s S", "sort", "s"),
            KeyHelp((("w", "scale"),), "w", "scale"),
            KeyHelp((("i", "invert"),), "i", "invert"),
            KeyHelp((("u", "frames"),), "u", "frames"),
            KeyHelp((("e", "unfold"),), "e", "unfold"),
            KeyHelp((("c", "copy"),), "c", "copy"),
        ),
    ),
    (
        "program",
        (
            KeyHelp((("question_mark", "help"), ("f1", "help")), "?", "help", "?"),
            KeyHelp((("q", "quit"), ("ctrl+c", "quit"), ("ctrl+q", "quit")), "q", "quit", "q"),
            KeyHelp((("ctrl+z", "suspend"),), "Ctrl+Z", "suspend"),
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
