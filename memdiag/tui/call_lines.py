"""The call tree as rows: bytes, their fraction, number of tensors, and the call, indented where calls branch."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from memdiag.text import phrase
from memdiag.tui.lines import DIM, HELD, STRONG, Lines, cell, fitted, short
from memdiag.tui.models.call_tree import NO_STACK, Node
from memdiag.tui.walk import OneDevice
from memdiag.units import format_bytes, format_count

_BAR = 8
_MOST_INDENT = 20


@dataclass
class CallLines(Lines):
    """The rows of the visible part of a tree."""

    here: OneDevice
    summary_text: str = ""

    def __post_init__(self) -> None:
        self.nodes: list[Node] = self.here.calls.shown()
        self.empty = phrase("screen.no-tensor")

    def __len__(self) -> int:
        return len(self.nodes)

    def summary(self) -> str:
        """Returns a description of the tree."""
        tree = self.here.calls
        way = phrase("screen.calls.inverted" if tree.inverted else "screen.calls.upright")
        return f"{format_bytes(tree.total_bytes)} · {way} · {phrase(f'screen.frames.{tree.frames}')}"

    def head(self, width: int) -> Text:
        """Returns the titles."""
        line = (
            Text(no_wrap=True, end="")
            .append_text(cell(phrase("screen.column.bytes"), 10, STRONG, right=True))
            .append(" ")
        )
        line.append_text(cell(phrase("screen.column.share"), 6, STRONG, right=True)).append(
            " " * (_BAR + 2) if width >= 100 else " "
        )
        return line.append_text(cell(phrase("screen.column.tensors"), 8, STRONG, right=True)).append(
            f"  {phrase('screen.column.call')}", STRONG
        )

    def line(self, number: int, width: int) -> Text:
        """Returns a call."""
        node = self.nodes[number]
        share = node.bytes / self.here.calls.total_bytes if self.here.calls.total_bytes else 0.0
        line = Text(no_wrap=True, end="").append_text(cell(format_bytes(node.bytes), 10, right=True)).append(" ")
        line.append_text(cell(f"{share:.1%}", 6, right=True)).append(" ")
        if width >= 100:
            filled = round(share * _BAR)
            line.append("█" * filled, HELD).append(" " * (_BAR - filled + 1))
        line.append_text(cell(format_count(node.num_tensors), 8, DIM, right=True)).append(" ")
        mark = ("▾" if node.is_open else "▸") if node.opens else " "
        indent = " " * min(node.indent, _MOST_INDENT) + (f"{node.indent} " if node.indent > _MOST_INDENT else "")
        line.append(f"{indent}{mark} ")
        return line.append_text(self._call(node, width - line.cell_len))

    def _call(self, node: Node, width: int) -> Text:
        if node.path[-1] == NO_STACK:
            return fitted(phrase("screen.calls.no-stack"), width, DIM)
        frame = self.here.trace.stacks.frames[node.path[-1]]
        file = frame.filename.rsplit("/", 1)[-1]
        words = f"{short(frame.name, 200)}  {short(file, 100)}:{frame.line}" if frame.line else short(str(frame), 300)
        return cell(short(words), max(width, 1), STRONG if frame.is_user else "")

    def detail(self, number: int) -> Text:
        """Returns the calls from the root to this one, in full."""
        node = self.nodes[number]
        text = Text()
        text.append(
            phrase("screen.calls.bytes", bytes=format_bytes(node.bytes), count=node.num_tensors) + "\n\n", STRONG
        )
        if node.path[-1] == NO_STACK:
            return text.append(phrase("screen.calls.no-stack.why"))
        frames = self.here.trace.stacks.frames
        for place in node.path:
            text.append(f"  {short(str(frames[place]), 1000)}\n", STRONG if frames[place].is_user else DIM)
        return text
