"""Converts every exception that a damaged or hostile file can cause in a reader into ``RefusedFile``, with a hint."""

from __future__ import annotations

import binascii
import csv
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memdiag.errors import RefusedFile
from memdiag.text import phrase

_DAMAGED = (
    ArithmeticError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    struct.error,
    csv.Error,
    sqlite3.Error,
    zipfile.BadZipFile,
    zlib.error,
    binascii.Error,
    EOFError,
    NotImplementedError,
)
_LONGEST = 160


@contextmanager
def guard(path: Path, what: str, hint: str) -> Iterator[None]:
    """Converts exceptions while reading ``path`` into a refusal.

    Args:
        path: The file.
        what: Key of the expected content, such as ``sources.chrome-trace``: "a torch profiler trace".
        hint: Key of the hint, or "" for none.

    Raises:
        RefusedFile: The body failed because of the file's content or size, or because the file is missing.
    """
    hint_text = phrase(hint) if hint else ""
    try:
        yield
    except RefusedFile:
        raise
    except UnicodeError:
        raise RefusedFile(phrase("errors.not-utf8", path=str(path), what=phrase(what)), hint_text) from None
    except _DAMAGED as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise RefusedFile(
            phrase("errors.not-format", path=str(path), what=phrase(what), value=str(said[:_LONGEST])), hint_text
        ) from None
    except RecursionError:
        raise RefusedFile(phrase("errors.too-deep", path=str(path), what=phrase(what)), hint_text) from None
    except MemoryError:
        raise RefusedFile(phrase("errors.asks-memory", path=str(path)), hint_text) from None
    except OSError as error:
        raise RefusedFile(
            phrase("errors.unreadable", path=str(path), value=str(error.strerror or error)), hint_text
        ) from None
