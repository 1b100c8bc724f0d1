"""Makes a file readable: fetches it from an object store through fsspec, or decompresses it if readers cannot.

One file at a time is on the disk, in a temporary file. gzip is left to the readers, which limit its expansion; files
decompressed here are limited in the same way.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, Any

from memdiag.errors import MemdiagError, RefusedFile
from memdiag.text import phrase
from memdiag.units import MIB, format_bytes

PACKED = {".bz2": "bz2", ".xz": "xz", ".lzma": "lzma", ".zst": "zstd", ".lz4": "lz4", ".snappy": "snappy"}
_PIECE = 4 * MIB
_FLOOR, _MOST_RATIO = 256 * MIB, 100  # limit of a file's expansion: snapshots shrink 14 to 40 times


def is_url(text: str) -> bool:
    """Returns whether a text names something other than a path of this machine."""
    scheme, found, _ = text.partition("://")
    return bool(found) and len(scheme) > 1 and scheme.replace("+", "").replace("-", "").replace(":", "").isalnum()


def fsspec() -> Any:
    """Returns the module fsspec.

    Raises:
        MemdiagError: It is not installed.
    """
    try:
        return import_module("fsspec")  # has no types
    except ImportError:
        raise MemdiagError(
            phrase("errors.fsspec"),
            phrase("errors.fsspec.hint"),
        ) from None


@contextmanager
def local_copy(url: str) -> Iterator[Path]:
    """Provides a path at which the file can be read: its own, or that of a copy that exists within the block.

    Raises:
        MemdiagError: It cannot be fetched.
    """
    kind = PACKED.get(PurePosixPath(url).suffix.lower())
    if kind is None and not is_url(url):
        yield Path(url)
        return
    handle, name = tempfile.mkstemp(prefix="memdiag-", suffix=_suffix(url, packed=kind is not None))
    try:
        with os.fdopen(handle, "wb") as into:
            _bring(url, kind, into)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _suffix(url: str, *, packed: bool) -> str:
    """Returns the suffix of the file, which some readers check."""
    name = PurePosixPath(PurePosixPath(url).stem if packed else url)
    suffix = "".join(name.suffixes[-2:]) if name.suffix == ".gz" else name.suffix
    return suffix if suffix.replace(".", "").isalnum() and len(suffix) < 16 else ""


def _bring(url: str, kind: str | None, into: IO[bytes]) -> None:
    module = fsspec()
    try:
        # A path of this machine is not an address: in an address, :: separates file systems.
        system, path = module.core.url_to_fs(url) if is_url(url) else (module.filesystem("file"), url)
        most = _FLOOR + _MOST_RATIO * int(system.size(path) or 0)
        with system.open(path, "rb", compression=kind) as source:
            size = 0
            while piece := source.read(_PIECE):
                size += len(piece)
                if kind is not None and size > most:
                    raise RefusedFile(
                        phrase("errors.expands", path=str(url), value=str(format_bytes(size))),
                        phrase("errors.expands.hint"),
                    )
                into.write(piece)
    except MemdiagError:
        raise
    except Exception as error:  # noqa: BLE001 - each file system raises its library's exceptions
        raise MemdiagError(*_why(url, error)) from None


def _why(url: str, error: Exception) -> tuple[str, str]:
    """Returns the problem with an address, and what to do."""
    said = str(error) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        return f"{url}: no such file", "check the address"
    if isinstance(error, ImportError | ValueError):  # an unknown protocol or compression, or its package is missing
        return f"{url}: {said}", "install the package that fsspec names, for example s3fs or zstandard"
    return f"{url}: cannot be read: {said}", "check the address and your access to this file system"
