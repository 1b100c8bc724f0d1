"""Totals of the tensors in memory.

They are a bar to scale, and the amounts, which are the legend of all colours on the screen.
"""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from memdiag import vocabulary
from memdiag.render.support.bar import share_out
from memdiag.text import phrase
from memdiag.tui.lines import DIM
from memdiag.tui.tensor_lines import brief
from memdiag.tui.walk import By
from memdiag.units import format_bytes

FREE_PARTS = ("stranded", "foreign", "cache")
_SQUARE = "█"
_NO_COLOR = {"within_phase": "h"}  # the first letters of the others differ
_BETWEEN = "  "


def legend(totals: list[tuple[str, int]], by: By, width: int, *, color: bool) -> Text:
    """Returns the amounts, the largest first, each with its colour, or its letter in the bar.

    If the line is too long for ``width`` columns, it leaves out the shares first, then the smallest amounts.
    """
    whole = sum(size for _, size in totals)
    if not whole:
        return Text(set_cell_size(phrase("screen.no-tensor.totals"), width).rstrip(), style=DIM, no_wrap=True, end="")
    full = [f"{vocabulary.name(by, name)} {format_bytes(size)} {_share(size / whole)}" for name, size in totals]
    words = full if _fits(full, width) else [f"{brief(name)} {format_bytes(size)}" for name, size in totals]
    shown = next(
        number
        for number in range(len(words), -1, -1)
        if number == 0 or _fits(words[:number], width, len(words) - number)
    )
    line = Text(no_wrap=True, end="")
    for (name, _), text in zip(totals[:shown], words, strict=False):
        line.append(_SQUARE if color else _letter(name), vocabulary.color(by, name)).append(f" {text}{_BETWEEN}")
    line.append(phrase("screen.more", count=len(words) - shown) if shown < len(words) else "", DIM)
    line.rstrip()
    line.truncate(width)
    return line


def _fits(words: list[str], width: int, num_left_out: int = 0) -> bool:
    more = _BETWEEN + phrase("screen.more", count=num_left_out) if num_left_out else ""
    return cell_len(_BETWEEN.join(f"{_SQUARE} {text}" for text in words) + more) <= width


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "<1%"


def bar(totals: list[tuple[str, int]], free: dict[str, int], by: By, width: int, *, color: bool) -> Text:
    """Returns reserved memory as one bar: tensors by category or lifetime, then free memory by cause.

    Args:
        totals: Bytes of tensors.
        free: Bytes by cause, or ``cache`` for all of them if causes are unknown.
        by: Classes of ``totals``.
        width: Width in columns; the chart uses all of them.
        color: Whether colours stand for classes, otherwise letters.
    """
    parts = [(_SQUARE if color else _letter(name), vocabulary.color(by, name), size) for name, size in totals]
    parts += [
        (vocabulary.STYLES["part"][name].glyph, vocabulary.color("part", name), size)
        for name, size in free.items()
        if size > 0
    ]
    line = Text(no_wrap=True, end="")
    if not parts or width < len(parts):
        return line
    for (glyph, style, _), columns in zip(parts, share_out([size for *_, size in parts], width), strict=True):
        line.append(glyph * columns, style)
    return line


def _letter(name: str) -> str:
    return _NO_COLOR.get(name, name[0])
