"""Opens files within bounds: gzip seen through, nothing followed, nothing read that cannot be a trace."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.units import MIB, format_bytes

GZIP_MAGIC = b"\x1f\x8b"
HEAD = 64 * 1024


def expansion_limit(path: Path) -> int:
    """Returns the bytes a compressed file may expand to, so that a bomb is refused before it fills the memory."""
    return 32 * MIB + 40 * path.stat().st_size  # snapshots shrink to a tenth, the most uniform ones to a thirtieth


def read_head(path: Path) -> bytes:
    """Returns the first 64 KiB of a file, decompressed if it is a gzip.

    Raises:
        RefusedFile: There is no such file, it is a directory, empty, unreadable, or a damaged gzip.
    """
    try:
        if path.is_dir():
            raise RefusedFile(f"{path} is a directory", "give the trace file itself")
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device has no end
            raise RefusedFile(f"{path} is not an ordinary file", "save what comes out of it to a file first")
        with path.open("rb") as file:
            head = file.read(HEAD)
        if not head:
            raise RefusedFile(f"{path} is empty (0 bytes)", "the program that wrote it was probably killed; record again")
        if head.startswith(GZIP_MAGIC):
            with gzip.open(path) as unzipped:
                return unzipped.read(HEAD)
        return head
    except FileNotFoundError:
        raise RefusedFile(f"{path}: no such file", "check the path") from None
    except PermissionError:
        raise RefusedFile(f"{path}: no permission to read it", "check its owner and mode") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RefusedFile(f"{path}: damaged gzip: {error}", "copy it again; the file is cut or changed") from None
    except OSError as error:
        raise RefusedFile(f"{path}: cannot be read: {error.strerror or error}", "check that it is an ordinary file") from None


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
        limit = expansion_limit(path)
        with gzip.open(path) as unzipped:
            data = unzipped.read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RefusedFile(f"{path}: damaged gzip: {error}", "copy it again; the file is cut or changed") from None
    except OSError as error:
        raise RefusedFile(f"{path}: cannot be read: {error.strerror or error}", "check that it is an ordinary file") from None
    if len(data) > limit:
        raise RefusedFile(f"{path} expands to more than {format_bytes(limit)}", "decompress it yourself if you trust it")
    return data
