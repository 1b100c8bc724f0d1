"""The fields of PyTorch's memory snapshots (``schema.FIELDS``), for the reader, the builder, the writer and redaction.

A new plain field is one row of the table: it is then read, a column of the trace, exported, written back, redacted and
kept by filters.
"""

from __future__ import annotations

from memdiag.trace.schema import ENTRY, FIELDS, IGNORED, LINES, PAIR, TEXT, WORD, Field


def fields_of(level: str) -> list[Field]:
    """Returns the fields of a level that are read."""
    return [field for field in FIELDS if field.level == level and field.kind != IGNORED]


def written_of(level: str) -> list[Field]:
    """Returns the fields of a level that are written: with a column, or with a constant."""
    return [field for field in FIELDS if field.level == level and (field.column or field.constant is not None)]


def columns_of(field: Field) -> tuple[str, ...]:
    """Returns the columns of segments and blocks that store a field: two of a PAIR."""
    return (f"{field.column}_major", f"{field.column}_minor") if field.kind == PAIR else (field.column,)


def ignored_of(level: str) -> set[str]:
    """Returns the names of a level's fields that are known but not read."""
    return {field.name for field in FIELDS if field.level == level and field.kind == IGNORED}


# Columns of events that only a snapshot has.
MORE_COLUMNS = tuple(field.column for field in fields_of(ENTRY) if field.meaning)
# Columns of indices into Stacks, in every level.
STACK_COLUMNS = ("stack", *dict.fromkeys(field.column for field in FIELDS if field.kind == LINES))
TEXT_COLUMNS = tuple(field.column for field in fields_of(ENTRY) if field.kind == TEXT)
# Values chosen by PyTorch itself, which contain no personal data.
PYTORCHS_WORDS = frozenset(field.name for field in FIELDS if field.kind == WORD or field.constant is not None)
