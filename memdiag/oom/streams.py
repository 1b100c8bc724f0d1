"""Sources of text as chunks of UTF-8 in bounded memory: files (also compressed), standard input and strings.

Binary content is read as well: logs contain incomplete bytes, and people pass the wrong file. A truncated or damaged
compressed file, such as one that is still being written, is read up to the damage.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

from memdiag.errors import MemdiagError
from memdiag.text import phrase

CHUNK_BYTES = 1 << 18
Progress = Callable[[int, int | None], None]

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, ""),
)
# journalctl -o json writes a message with control characters, such as colours, as a list of bytes.
_BYTES_START = re.compile(rb'"MESSAGE"\s?:\s?\[')
_BYTES = re.compile(rb'("MESSAGE"\s?:\s?)\[([0-9, ]{3,1000000})\]')
_ZSTD = b"\x28\xb5\x2f\xfd"
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)


def chunks_of_text(text: str) -> Iterator[bytes]:
    """Yields a string as UTF-8."""
    step = CHUNK_BYTES
    for start in range(0, len(text), step):
        yield text[start : start + step].encode("utf-8", "replace")


def chunks_of_file(name: str, progress: Progress | None = None) -> Iterator[bytes]:
    """Yields the text of a file, decompressed, as UTF-8; see ``bytes_of_file``."""
    yield from without_byte_lists(decoded(bytes_of_file(name, progress)))


def bytes_of_file(name: str, progress: Progress | None = None) -> Iterator[bytes]:
    """Yields the content of a file, decompressed.

    Args:
        name: Its path; "-" is standard input.
        progress: Called occasionally with the bytes read so far and the size of the file (compressed; None if unknown).

    Raises:
        MemdiagError: It cannot be opened.
    """
    if name == "-":
        yield from _chunks(cast(BufferedReader, sys.stdin.buffer), progress, None)
        return
    path = Path(name)
    try:
        with path.open("rb") as file:
            status = path.stat()
            yield from _chunks(file, progress, status.st_size or None)
    except IsADirectoryError as error:
        raise MemdiagError(phrase("errors.folder", name=str(name)), phrase("errors.folder.hint")) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise MemdiagError(
            phrase("errors.cannot-read", name=str(name), reason=str(reason)), phrase("errors.cannot-read.hint")
        ) from error


def _chunks(file: BufferedReader, progress: Progress | None, total: int | None) -> Iterator[bytes]:
    done = 0
    for chunk in unpacked(file):
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(file.tell() if total is not None else done, total)


def decoded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields text as UTF-8; its byte order mark names its encoding."""
    decode: codecs.IncrementalDecoder | None = None
    for number, chunk in enumerate(chunks):
        if number == 0:
            mark, encoding = next(((mark, name) for mark, name in _MARKS if chunk.startswith(mark)), (b"", ""))
            chunk = chunk[len(mark) :]
            decode = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
        if decode is not None:
            chunk = decode.decode(chunk).encode("utf-8", "replace")
        yield chunk


def without_byte_lists(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields a log in which the messages that journald exported as lists of bytes are JSON texts."""
    before = b""
    for chunk in chunks:
        text = before + chunk
        before = b""
        if _BYTES_START.search(text):
            end = text.rfind(b"\n") + 1
            if len(text) - end <= CHUNK_BYTES:  # the last line may be incomplete
                text, before = text[:end], text[end:]
            text = _BYTES.sub(_as_text, text)
        if text:
            yield text
    if before:
        yield _BYTES.sub(_as_text, before)


def _as_text(match: re.Match[bytes]) -> bytes:
    try:
        message = bytes(int(number) for number in match[2].split(b","))
    except ValueError:  # not bytes
        return match[0]
    return match[1] + json.dumps(message.decode("utf-8", "replace"), ensure_ascii=False).encode()


def unpacked(file: BufferedReader) -> Iterator[bytes]:
    """Yields the content of a file that may be compressed, up to the first damage."""
    head = file.peek(16)
    packed: IO[bytes] | gzip.GzipFile | None = None
    if head.startswith(b"\x1f\x8b"):
        packed = gzip.GzipFile(fileobj=file)
    elif head.startswith(b"\xfd7zXZ\0"):
        packed = lzma.LZMAFile(file)  # noqa: SIM115 - holds only the file that the caller closes
    elif head.startswith(b"BZh") and head[4:10] in {b"1AY&SY", b"\x17rE8P\x90"}:
        packed = bz2.BZ2File(file)
    elif head.startswith(_ZSTD):
        packed = _zstd(file)
    if packed is None:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
        return
    try:
        while chunk := packed.read(CHUNK_BYTES):
            yield chunk
    except _BROKEN:
        return


def _zstd(file: BufferedReader) -> IO[bytes]:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # Python 3.14
    except ImportError as error:
        raise MemdiagError(phrase("errors.zstd"), phrase("errors.zstd.hint")) from error
    opened: IO[bytes] = zstd.ZstdFile(file)
    return opened
