"""Text that may come from a file, made safe to show; and glyphs for places that know only ASCII."""

from __future__ import annotations

import codecs

from memdiag.text import shown

# Drawings one character for one character, so that bars stay aligned where they are replaced last.
_ASCII = dict(zip("█▓▒▚░·▼▲─│┤└…", "#%+x:.v^-||+~", strict=True)) | {"→": "->", "±": "+-"}
FALLBACK = "memdiag-ascii"  # how to encode what an encoding lacks, as ``errors`` of streams and of ``str.encode``


def plain(text: object, limit: int = 0) -> str:
    r"""Returns ``text`` on one line without anything a terminal would act on.

    Control characters (ESC, newlines), bidirectional and other invisible formatting characters, unusual spaces and lone
    surrogates
    are written as escapes: ``\x1b``, ``\u202e``. The result holds printable characters and spaces only.

    Args:
        text: Anything, see ``text_of``.
        limit: At most this many characters, the middle left out; 0: no limit.
    """
    shown = text_of(text)
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else _escape(char) for char in shown)
    return shorten(shown, limit) if limit else shown


def text_of(value: object) -> str:
    """Returns ``str(value)``; for what has none (a number of thousands of digits, containers in containers without end) its type."""
    try:
        return shown(value) if isinstance(value, str) else str(value)
    except (RecursionError, ValueError):
        return f"({type(value).__name__}, too large to show)"


def _escape(char: str) -> str:
    code = ord(char)
    if char in "\t\n\r":
        return {"\t": "\\t", "\n": "\\n", "\r": "\\r"}[char]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shorten(text: str, limit: int) -> str:
    """Returns ``text`` in at most ``limit`` characters; the middle goes first, since paths and names differ at their ends."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) * 2 // 3
    return text[: limit - 1 - tail] + "…" + text[len(text) - tail :]


def in_ascii(text: str) -> str:
    """Returns ``text`` in ASCII: drawings and signs as characters that look like them, the rest as escapes."""
    return text.encode("ascii", FALLBACK).decode("ascii")


def _fallback(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(char) or _escape(char) for char in error.object[error.start : error.end]), error.end


codecs.register_error(FALLBACK, _fallback)
