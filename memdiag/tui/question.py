"""A question in the bottom line, with the answer as typed.

textual's input widget is not used: keys that arrive faster than the screen is drawn (over a slow line, or pasted) must
all be handled in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from memdiag.text import phrase
from memdiag.tui.lines import DIM, STRONG, short

_LONGEST = 200


@dataclass
class Question:
    """The requested value (``filter`` or ``event``) and the answer so far."""

    what: str
    text: str = ""

    def typed(self, key: str, character: str | None) -> bool:
        """Handles a key; returns whether the answer changed."""
        before = self.text
        if key in {"backspace", "ctrl+h", "delete"}:
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif key == "ctrl+w":
            self.text = self.text.rstrip().rpartition(" ")[0]
        elif character is not None and character.isprintable():
            self.text = (self.text + character)[:_LONGEST]
        return self.text != before

    def pasted(self, text: str) -> None:
        """Handles a pasted text."""
        self.text = (self.text + " ".join(text.split()))[:_LONGEST]

    def line(self, width: int) -> Text:
        """Returns the line, with the end of a long answer."""
        line = Text(
            f" {phrase('report.purpose', purpose=phrase(f'screen.ask.{self.what}'))} ", style=STRONG, no_wrap=True
        )
        shown = short(self.text)[-max(width - line.cell_len - 2, 1) :]
        line.append(shown, "not bold").append(" ", "reverse")
        if not self.text:
            line.append(f" {phrase(f'screen.hint.{self.what}')}", f"not bold {DIM}")
        line.truncate(width, overflow="ellipsis")
        return line
