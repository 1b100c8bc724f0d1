"""Horizontal bars in characters."""

from __future__ import annotations

from collections.abc import Sequence

from memdiag.render.support.line import StyledText

_LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int, style: str = "green") -> StyledText:
    """Returns a bar for ``share`` (0 to 1) of ``width`` columns; any value above 0 is visible."""
    return StyledText("█" * max(round(share * width), 1 if share > 0 else 0), style)


def level_row(shares: Sequence[float], width: int) -> str:
    """Returns one row of blocks whose heights are ``shares`` (0 to 1), in at most ``width`` columns.

    If there are more shares than columns, a column shows the largest of its shares.
    """
    num = min(len(shares), width)
    highest = [max(shares[len(shares) * at // num : len(shares) * (at + 1) // num]) for at in range(num)]
    return "".join(_LEVELS[min(max(int(share * len(_LEVELS)), 0), len(_LEVELS) - 1)] for share in highest)


def stacked_bar(parts: Sequence[tuple[str, str, int]], width: int) -> StyledText:
    """Returns one bar of ``width`` columns, divided among ``parts`` (glyph, style, amount).

    Every part above 0 gets at least one column, taken from the largest; the rest is divided as exactly as columns
    allow.
    """
    total = sum(max(amount, 0) for _, _, amount in parts)
    line = StyledText()
    if total <= 0:
        return line
    cells = share_out([amount for _, _, amount in parts], width)
    for (glyph, style, _), num in zip(parts, cells, strict=True):
        line.append(glyph * num, style)
    return line


def share_out(amounts: Sequence[int], width: int) -> list[int]:
    """Returns ``width`` columns divided among ``amounts`` (largest remainder), at least one for each above 0."""
    amounts = [max(amount, 0) for amount in amounts]
    total = sum(amounts)
    exact = [amount * width / total for amount in amounts]
    cells = [max(int(value), 1 if value > 0 else 0) for value in exact]
    while sum(cells) < width:
        short = max(range(len(cells)), key=lambda i: exact[i] - cells[i])
        cells[short] += 1
    while sum(cells) > width:
        longest = max(range(len(cells)), key=lambda i: cells[i])
        cells[longest] -= 1
    return cells
