"""Details that only some policies report about a simulated run, as rows that every output form can draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

Cell = str | tuple[str, str]  # text, or text and its style ("bold", "dim", "green", …)


@dataclass(frozen=True, slots=True)
class DetailRow:
    """One row.

    Attributes:
        form: "text": a paragraph; "table": cells in columns (consecutive rows with equal ``columns`` form one table);
            "title": the title of a section; "paste": a line to copy; "gap": an empty line.
        cells: One text; in a table, one for each column.
        columns: In a table, the alignment of each column: "l", "r", or "w" for the column that fills the remaining
            width.
        indent: Width of the left margin in characters.
    """

    form: Literal["text", "table", "title", "paste", "gap"]
    cells: tuple[Cell, ...] = ()
    columns: str = ""
    indent: int = 2


class Detail(Protocol):
    """A dataclass with the details that one policy reports about a run; JSON has its fields under ``key``."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key(self) -> str:
        """Its key in the JSON of a simulated run."""

    def rows(self, run: str) -> Iterable[DetailRow]:
        """Yields its rows for people; ``run`` is the letter of the run in the table above."""


def gap() -> DetailRow:
    """Returns an empty line."""
    return DetailRow("gap")


def title(text: str) -> DetailRow:
    """Returns the title of a section."""
    return DetailRow("title", (text,))


def paragraph(text: str, style: str = "", indent: int = 2) -> DetailRow:
    """Returns a paragraph."""
    return DetailRow("text", ((text, style),), indent=indent)


def paste(line: str, indent: int) -> DetailRow:
    """Returns a line to copy."""
    return DetailRow("paste", (line,), indent=indent)


def table(columns: str, rows: Iterable[Sequence[Cell]], indent: int = 2) -> Iterator[DetailRow]:
    """Yields the rows of a table; see ``DetailRow`` for ``columns``."""
    for cells in rows:
        yield DetailRow("table", tuple(cells), columns, indent)
