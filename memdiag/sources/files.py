"""Opens files within limits: gzip is decompressed, links are not followed, files that cannot be traces are not read."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.quoting import file_argument
from memdiag.sources.folders import trace_in
from memdiag.text import phrase
from memdiag.units import MIB, format_bytes

GZIP_MAGIC = b"\x1f\x8b"
HEAD = 64 * 1024
_PIECE = 16 * MIB
_EXPANSION_FLOOR, _EXPANSION = 256 * MIB, 40  # limit of the decompressed size
_BOMB_FLOOR, _BOMB_RATIO = 64 * MIB, 100  # limit of the expansion while decompressing


def read_head(path: Path) -> bytes:
    """Returns the first 64 KiB of a file, decompressed if it is a gzip.

    Raises:
        RefusedFile: The file does not exist, is a directory, empty, unreadable, or a damaged gzip.
    """
    try:
        if path.is_dir():
            inside = trace_in(path)
            raise RefusedFile(
                phrase("errors.directory", path=str(path)),
                phrase("errors.directory.contains", file=file_argument(str(inside)))
                if inside
                else phrase("errors.directory.hint"),
            )
        if path.exists() and not path.is_file():  # reading a pipe could block, and a device is endless
            raise RefusedFile(phrase("errors.not-ordinary", path=str(path)), phrase("errors.not-ordinary.hint"))
        with path.open("rb") as file:
            head = file.read(HEAD)
        if not head:
            raise RefusedFile(phrase("errors.empty", path=str(path)), phrase("errors.empty.hint"))
        if head.startswith(GZIP_MAGIC):
            with gzip.open(path) as unzipped:
                return unzipped.read(HEAD)
        return head
    except FileNotFoundError:
        if str(path) == "-":
            raise RefusedFile(phrase("errors.not-stdin"), phrase("errors.not-ordinary.hint")) from None
        raise RefusedFile(phrase("errors.missing", path=str(path)), phrase("errors.missing.hint")) from None
    except PermissionError:
        raise RefusedFile(phrase("errors.permission", path=str(path)), phrase("errors.permission.hint")) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RefusedFile(phrase("errors.gzip", path=str(path), error=str(error)), phrase("errors.cut.hint")) from None
    except OSError as error:
        raise RefusedFile(
            phrase("errors.unreadable", path=str(path), value=str(error.strerror or error)),
            phrase("errors.ordinary.hint"),
        ) from None


def read_bytes(path: Path) -> bytes:
    """Returns a whole file, decompressed if it is a gzip.

    Raises:
        RefusedFile: The gzip is damaged or expands to an absurd size.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == GZIP_MAGIC
        if not zipped:
            return path.read_bytes()
        return _unzip(path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RefusedFile(phrase("errors.gzip", path=str(path), error=str(error)), phrase("errors.cut.hint")) from None
    except OSError as error:
        raise RefusedFile(
            phrase("errors.unreadable", path=str(path), value=str(error.strerror or error)),
            phrase("errors.ordinary.hint"),
        ) from None


def plain_content(path: Path) -> bytes | Path:
    """Returns the path itself for piecewise reading, or the decompressed content of a gzip.

    Raises:
        RefusedFile: The gzip is damaged or expands to an absurd size; or the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == GZIP_MAGIC
    except OSError as error:
        raise RefusedFile(
            phrase("errors.unreadable", path=str(path), value=str(error.strerror or error)),
            phrase("errors.ordinary.hint"),
        ) from None
    return read_bytes(path) if zipped else path


def _unzip(path: Path) -> bytes:
    """Decompresses a file piecewise, and stops as soon as it looks like a decompression bomb.

    Snapshots are repetitive: gzip makes them 14 to 25 times smaller. A bomb expands a thousandfold.
    """
    most = _EXPANSION_FLOOR + _EXPANSION * path.stat().st_size
    pieces: list[bytes] = []
    size = 0
    with path.open("rb") as file, gzip.open(file) as unzipped:
        while piece := unzipped.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most or (size > _BOMB_FLOOR and size > _BOMB_RATIO * file.tell()):
                raise RefusedFile(
                    phrase("errors.expands", path=str(path), value=str(format_bytes(size))),
                    phrase("errors.expands.hint"),
                )
    return b"".join(pieces)
