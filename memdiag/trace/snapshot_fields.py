"""The fields of PyTorch's memory snapshots, as data for the reader, the builder, the writer and redaction.

A new plain field is one row here and a column of ``schema.EVENTS``, ``SEGMENTS`` or ``BLOCKS``: it is then read,
written back, redacted and kept by filters.
"""

from __future__ import annotations

from typing import NamedTuple

from memdiag.trace.schema import ACTIONS, ACTIVE_ALLOCATED, BLOCK_STATES

# Content of a field: a whole number; one of a few words; a list of dicts; two whole numbers; free text; anything else,
# which is not read; a truth value; a number of bytes.
NUMBER, WORD, BOXED, PAIR, TEXT, IGNORED, FLAG, SIZE = range(8)
ENTRY, SEGMENT, BLOCK = "entry", "segment", "block"


class Field(NamedTuple):
    """One key of a snapshot.

    Attributes:
        name: The key.
        level: The dicts that contain it: ENTRY (of ``device_traces``), SEGMENT or BLOCK.
        kind: Type of its content.
        column: The column of ``RawDevice`` or of the tables SEGMENTS and BLOCKS that stores it, or "" if none.
        missing: The value of a number, size or word if the key is missing.
        constant: Value that memdiag writes into every dict for a field that is not read; None to write the column's
            values, or nothing.
        words: The words of a WORD, by the number that its column stores.
    """

    name: str
    level: str
    kind: int
    column: str = ""
    missing: int = -1
    constant: str | None = None
    words: tuple[str, ...] = ()


FIELDS = (
    Field("action", ENTRY, WORD, "action", words=ACTIONS),
    Field("addr", ENTRY, NUMBER, "addr"),
    Field("device_free", ENTRY, NUMBER, "addr"),  # of a failed request, which has no address
    Field("size", ENTRY, NUMBER, "size"),
    Field("stream", ENTRY, NUMBER, "stream", missing=0),
    Field("time_us", ENTRY, NUMBER, "time_us"),
    Field("frames", ENTRY, BOXED, "stack"),
    Field("pool_id", ENTRY, PAIR, "pool"),
    Field("user_metadata", ENTRY, TEXT, "user_metadata"),
    Field("compile_context", ENTRY, IGNORED, constant="N/A"),
    Field("forward_frames", ENTRY, IGNORED),
    Field("device", ENTRY, IGNORED),
    Field("version_counter", ENTRY, IGNORED),
    Field("device", SEGMENT, NUMBER, missing=0),
    Field("address", SEGMENT, NUMBER, "address"),
    Field("total_size", SEGMENT, SIZE, "total_size"),
    Field("allocated_size", SEGMENT, SIZE, "allocated_size"),
    Field("active_size", SEGMENT, SIZE, "active_size"),
    Field("requested_size", SEGMENT, SIZE, "requested_size"),
    Field("stream", SEGMENT, NUMBER, "stream", missing=0),
    Field("segment_type", SEGMENT, WORD, "small", words=("large", "small")),
    Field("segment_pool_id", SEGMENT, PAIR, "pool"),
    Field("is_expandable", SEGMENT, FLAG, "expandable"),
    Field("frames", SEGMENT, BOXED, "stack"),
    Field("blocks", SEGMENT, BOXED),
    Field("address", BLOCK, NUMBER, "address"),
    Field("size", BLOCK, SIZE, "size", missing=0),
    Field("requested_size", BLOCK, SIZE, "requested_size"),
    Field("state", BLOCK, WORD, "state", missing=ACTIVE_ALLOCATED, words=BLOCK_STATES),
    Field("frames", BLOCK, BOXED, "stack"),
    Field("history", BLOCK, BOXED),
    Field("real_size", BLOCK, IGNORED),
)


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


TEXT_COLUMNS = tuple(field.column for field in fields_of(ENTRY) if field.kind == TEXT)
# Values that PyTorch itself chooses: they identify nobody.
PYTORCHS_WORDS = frozenset(field.name for field in FIELDS if field.kind == WORD or field.constant is not None)
