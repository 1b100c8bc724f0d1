"""Files that ``memdiag export`` and ``memdiag plot`` have written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExportedFile:
    """A file in another tool's format.

    Attributes:
        file: Path of the file.
        bytes: Size of the file.
    """

    file: str
    bytes: int


@dataclass(frozen=True)
class ExportedFiles:
    """The files of one export.

    Attributes:
        format: Format of the files: "perfetto", "speedscope", "csv", "parquet" or "snapshot".
        trace: The trace that was exported.
        files: The files.
    """

    format: str
    trace: str
    files: tuple[ExportedFile, ...]


@dataclass(frozen=True)
class WrittenPicture:
    """A picture.

    Attributes:
        file: Path of the picture.
        kind: What it shows: "timeline", "fragmentation", "lifetimes", "policies", "map" or "card".
        trace: The trace.
        device: Index of the device.
        bytes: Size of the file.
    """

    file: str
    kind: str
    trace: str
    device: int
    bytes: int


@dataclass(frozen=True)
class FailedPicture:
    """A picture that could not be drawn.

    Attributes:
        kind: Kind of the picture.
        trace: The trace that should be drawn.
        error: Why it could not be drawn.
        hint: What to do about it.
    """

    kind: str
    trace: str
    error: str
    hint: str


@dataclass(frozen=True)
class WrittenPictures:
    """The pictures of one command.

    Attributes:
        pictures: The pictures that were written.
        failed: The pictures that could not be drawn.
    """

    pictures: tuple[WrittenPicture, ...]
    failed: tuple[FailedPicture, ...]
