"""Archives of logs: the text members of a zip or tar file are read one after the other, without unpacking to disk.

A member has the name of the archive, a slash, and its own name. Such a name chooses one member.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, cast

from memdiag.errors import MemdiagError
from memdiag.oom.streams import Progress, bytes_of_file, decoded, unpacked, without_byte_lists
from memdiag.quoting import file_argument
from memdiag.text import phrase

ZIP_MAGIC = b"PK\x03\x04"
_TAR_MAGIC, _TAR_MAGIC_AT = b"ustar", 257
_HEAD = 4096
_TORCH_SAVE = "/data.pkl"  # in a file of torch.save, which is a zip, too
_DAMAGED = (zlib.error, EOFError, OSError, NotImplementedError)

Texts = Iterator[tuple[str, Iterator[bytes]]]


def texts_of_file(name: str, progress: Progress | None = None) -> Texts:
    """Yields the name and the chunks of each text in a file: of its text members if it is an archive, else of itself.

    Each text must be read before the next one.

    Args:
        name: Its path, that of an archive with the name of a member, or "-" for standard input.
        progress: As in ``bytes_of_file``.

    Raises:
        MemdiagError: It cannot be opened, is protected by a password, or is an archive on standard input.
    """
    archive = archive_of(name)
    if archive is not None:
        found = _members(archive, name, progress)
    elif name != "-" and _is_zip(Path(name)):
        found = _in_zip(Path(name))
    else:
        found = _in_stream(name, bytes_of_file(name, progress))
    yield from found


def archive_of(name: str) -> Path | None:
    """Returns the archive in the name of a member, such as ``logs.zip/rank0.log``; None if the name is no such name."""
    try:
        return next((parent for parent in Path(name).parents if parent.is_file()), None) if name != "-" else None
    except (OSError, ValueError):  # too long for a name, or contains a NUL
        return None


def is_archive(head: bytes) -> bool:
    """Returns whether a file that begins with ``head`` is a zip or an uncompressed tar file."""
    return head.startswith(ZIP_MAGIC) or head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC)


def _members(archive: Path, name: str, progress: Progress | None) -> Texts:
    is_found = False
    for member, chunks in texts_of_file(str(archive), progress):
        if Path(member) == Path(name):
            is_found = True
            yield name, chunks
    if not is_found:
        raise MemdiagError(phrase("errors.oom-member", name=name, path=str(archive)), phrase("errors.oom-log"))


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    except OSError:  # bytes_of_file reports it
        return False


def _in_zip(path: Path) -> Texts:
    import zipfile  # most logs are in no archive

    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if any(member.filename.endswith(_TORCH_SAVE) for member in members):
                return
            if any(member.flag_bits & 1 for member in members):
                raise MemdiagError(
                    phrase("errors.oom-password", path=str(path)),
                    phrase("errors.oom-unpack", command=f"unzip {file_argument(str(path))}"),
                )
            for member in members:
                with archive.open(member) as stream:
                    yield from _text(f"{path}/{member.filename}", stream)
    except (zipfile.BadZipFile, *_DAMAGED):  # truncated: the texts before the damage are read
        return


def _in_stream(name: str, chunks: Iterator[bytes]) -> Texts:
    head = next(chunks, b"")
    while head and len(head) < _HEAD and (more := next(chunks, b"")):
        head += more
    every = chain([head], chunks)
    if head.startswith(ZIP_MAGIC) and name == "-":
        raise MemdiagError(phrase("errors.oom-zip-pipe"), phrase("errors.oom-zip-pipe.hint"))
    if not head[_TAR_MAGIC_AT:].startswith(_TAR_MAGIC):
        yield name, without_byte_lists(decoded(every))
        return
    import tarfile

    try:
        with tarfile.open(fileobj=io.BufferedReader(_Joined(every)), mode="r|") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None:
                    yield from _text(name if name == "-" else f"{name}/{member.name}", stream)
    except (tarfile.TarError, *_DAMAGED):
        return


def _text(name: str, stream: IO[bytes]) -> Texts:
    """Yields a member if it is text."""
    file = cast(io.BufferedReader, io.BufferedReader(cast(io.RawIOBase, stream)))
    chunks = without_byte_lists(decoded(unpacked(file)))
    head = next(chunks, b"")
    if head and b"\0" not in head[:_HEAD]:
        yield name, chain([head], chunks)


class _Joined(io.RawIOBase):
    """A stream of the bytes of chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview | bytearray) -> int:  # type: ignore[override]
        if not self._left:
            self._left = next(self._chunks, b"")
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size
