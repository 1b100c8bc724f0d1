"""Phrases by key, in English and Chinese; and text of a file made safe to show.

A phrase is looked up by its key in a catalogue, ``messages/<area>.json``, which holds both texts of every key next to
each other::

    {"stranded": {"en": "{bytes} free in {count:# block|# blocks} too small to use", "zh": "…"}}

    phrase("fragmentation.stranded", bytes=format_bytes(n), count=3)

The part of a key before its first dot is the area. In a template, ``{name}`` is a value; whole numbers get thousands
separators. ``{name:# block|# blocks}`` chooses by number, and ``#`` stands for the number. A value may be a phrase
itself. ``{name:A}`` capitalises the value. ``memdiag`` inserts the space that Chinese text needs between Chinese
characters and Latin words or numbers.

A module that is complete in one file, such as a dialect of a plug-in, can hold the texts itself (``phrase_of``).

A ``Phrase`` is a ``str`` in the language that was active when it was created. It remembers its key and values, so a
renderer can show it in another language (``in_language``); the HTML report holds both.

Text that may come from a file goes through ``plain`` before it is shown, and through ``in_ascii`` where only ASCII can
be.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Literal, Self, cast

from memdiag.errors import MemdiagError

Language = Literal["en", "zh"]
Texts = Mapping[str, Mapping[Language, str]]  # key, language, template
LANGUAGES: tuple[Language, ...] = ("en", "zh")
VARIABLE = "MEMDIAG_LANG"
FOLDER = Path(__file__).parent / "messages"

_active: list[Language] = ["en"]


class Phrase(str):
    """A text that knows its key and values. It behaves as the ``str`` that it was when it was created."""

    __slots__ = ("key", "values")
    key: str
    values: Mapping[str, object]

    def __new__(cls, key: str, values: Mapping[str, object], language: Language | None = None) -> Self:
        """Creates phrase ``key`` of the catalogue in ``language`` (default: the active language)."""
        made = super().__new__(cls, _rendered(key, values, language or _active[0]))
        made.key, made.values = key, values
        return made

    # Arguments that copy and pickle pass to ``__new__``.
    def __getnewargs__(self) -> tuple[str, Mapping[str, object]]:  # type: ignore[override]
        """Returns the arguments that recreate this phrase in another process or a copy."""
        return self.key, self.values

    def in_language(self, language: Language) -> str:
        """Returns the text in ``language``."""
        return _rendered(self.key, self.values, language)


def phrase(key: str, /, **values: object) -> Phrase:
    """Returns the phrase ``key`` in the active language.

    Args:
        key: ``area.name``; the area names the catalogue file.
        values: Values of the template's placeholders: text, whole numbers, phrases.

    Raises:
        KeyError: The key is unknown, or a value of the template is missing.
    """
    return Phrase(key, values)


def phrase_of(texts: Texts, key: str, /, **values: object) -> Phrase:
    """Returns a phrase whose templates are in ``texts`` instead of a catalogue; without Chinese, it stays English."""
    return Phrase("", {"template": texts[key], "values": values})


def joined(parts: Iterable[str], separator: str = " ") -> Phrase:
    """Concatenates texts and phrases into one phrase.

    Empty texts are skipped, and Chinese sentences follow each other without a space.
    """
    kept = tuple(part for part in parts if part)
    return Phrase("", {"parts": kept, "separator": separator})


def sentence(text: str) -> Phrase:
    """Returns a text without a full stop as a sentence."""
    return phrase("vocabulary.sentence", text=text)


def in_language(text: str, chosen: Language) -> str:
    """Returns ``text`` in a language if it is a phrase; other text is returned unchanged."""
    return text.in_language(chosen) if isinstance(text, Phrase) else text


def shown(text: str) -> str:
    """Returns ``text`` in the active language if it is a phrase; other text is returned unchanged."""
    return in_language(text, _active[0])


def language() -> Language:
    """Returns the active language."""
    return _active[0]


def set_language(chosen: Language) -> None:
    """Makes ``chosen`` the active language of this process."""
    _active[0] = chosen


@contextmanager
def speaking(chosen: Language) -> Iterator[None]:
    """Makes ``chosen`` the active language within a ``with`` block."""
    before = _active[0]
    _active[0] = chosen
    try:
        yield
    finally:
        _active[0] = before


def checked(name: str) -> Language:
    """Returns the language called ``name``.

    Raises:
        MemdiagError: memdiag has no texts in that language.
    """
    if name not in LANGUAGES:
        raise MemdiagError(phrase("errors.language", name=name), phrase("errors.language.hint"))
    return name


def from_environment(environment: Mapping[str, str] = os.environ) -> Language:
    """Returns the language from MEMDIAG_LANG, else from the locale (LC_ALL, LC_MESSAGES, LANG), else English."""
    own = environment.get(VARIABLE, "")
    if own in LANGUAGES:
        return own
    locale = next((environment[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environment.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


@cache
def catalogue(area: str) -> dict[str, dict[Language, str]]:
    """Returns the phrases of an area: key (without the area), language, template."""
    import json  # not needed by commands that print no phrases

    loaded: dict[str, dict[Language, str]] = json.loads((FOLDER / f"{area}.json").read_text(encoding="utf-8"))
    return loaded


def _rendered(key: str, values: Mapping[str, object], chosen: Language) -> str:
    if not key and "template" in values:
        template = cast("Mapping[Language, str]", values["template"])
        own = cast("Mapping[str, object]", values["values"])
        return _completed(template.get(chosen) or template["en"], own, chosen)
    if not key:
        parts = cast("tuple[str, ...]", values["parts"])
        separator = cast("str", values["separator"])
        if chosen == "zh" and not isinstance(separator, Phrase):
            separator = _CHINESE.get(separator, separator)
        words = in_language(separator, chosen)
        texts = [in_language(part, chosen) for part in parts]
        return (
            words.join(texts)
            if chosen != "zh"
            else _spaced(piece for text in texts for piece in (words, text))[len(words) :]
        )
    area, _, name = key.partition(".")
    return _completed(catalogue(area)[name][chosen], values, chosen)


def _completed(template: str, values: Mapping[str, object], chosen: Language) -> str:
    filled = (
        text
        for before, field, spec in _pieces(template)
        for text in (before, "" if field is None else _filled(values[field], spec, chosen))
    )
    return _spaced(filled) if chosen == "zh" else "".join(filled)


def _spaced(pieces: Iterable[str]) -> str:
    """Joins pieces of Chinese text, with a space only between Chinese characters and Latin words or numbers."""
    text = ""
    for piece in pieces:
        if not piece:
            continue
        if re.fullmatch(_APART, text[-1:] + piece[:1]):
            text += " "
        elif text.endswith(" ") and re.fullmatch(_TOGETHER, text[-2:] + piece[:1]):
            text = text[:-1]
        elif piece.startswith(" ") and re.fullmatch(_TOGETHER, text[-1:] + piece[:2]):
            piece = piece[1:]
        text += piece
    return text


@cache
def _pieces(template: str) -> tuple[tuple[str, str | None, str], ...]:
    """Returns the parts of a template: text, the placeholder that follows it (None at the end) and its format."""
    return tuple((literal, field, spec or "") for literal, field, spec, _ in Formatter().parse(template))


def _filled(value: object, spec: str, chosen: Language) -> str:
    """Returns the text for a placeholder.

    Numbers get separators, singular or plural is chosen by number, and phrases appear in the template's language.
    """
    if isinstance(value, Phrase) or spec == "A":
        text = in_language(str(value) if not isinstance(value, str) else value, chosen)
        is_word = text.partition(" ")[0].isalpha()  # setting names keep their spelling
        return text[:1].upper() + text[1:] if spec == "A" and is_word else text
    if isinstance(value, int) and not isinstance(value, bool):
        if not spec:
            return f"{value:,}"
        if "#" in spec or "|" in spec:
            one, _, many = spec.partition("|")
            return (one if value == 1 or not many else many).replace("#", f"{value:,}")
    return format(value, spec)


_HAN, _SIGNS = "\u3400-\u9fff", "\u3001\u3002\u300a-\u300f\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
# strings, not patterns: English never needs them, and compiling them takes a twentieth of the start of ``memdiag oom``
_APART = rf"[{_HAN}][A-Za-z0-9]|[A-Za-z0-9%][{_HAN}]"
_TOGETHER = rf"[{_HAN}{_SIGNS}] [{_HAN}{_SIGNS}]|[{_SIGNS}] \S|\S [{_SIGNS}]"
# separators of joined texts; Chinese uses full-width signs without spaces
_CHINESE = {
    " ": "",
    ", ": "\uff0c",
    "; ": "\uff1b",
}

# ---------------------------------------------------------------------------------------------- text of a file
# Each drawing character has a one-character replacement, so that bars stay aligned.
_ASCII = dict(zip("█▓▒▚░·▼▲─│┤└…▁▂▃▄▅▆▇", "#%+x:.v^-||+~_.:-=+*", strict=True)) | {"→": "->", "±": "+-"}
FALLBACK = "memdiag-ascii"  # error handler for characters that an encoding lacks, see ``errors`` of ``str.encode``


def plain(text: object, limit: int = 0) -> str:
    r"""Returns ``text`` on one line without anything a terminal would act on.

    Control characters (ESC, newlines), bidirectional and other invisible formatting characters, unusual spaces and lone
    surrogates are written as escapes: ``\x1b``, ``\u202e``. The result holds printable characters and spaces only.

    Args:
        text: Anything, see ``text_of``.
        limit: Most characters; the middle of longer text is omitted. 0: no limit.
    """
    safe = text_of(text)
    if not safe.isprintable():
        safe = "".join(char if char.isprintable() else _escape(char) for char in safe)
    return shorten(safe, limit) if limit else safe


def text_of(value: object) -> str:
    """Returns ``str(value)``, or the type if that fails (thousands of digits, endlessly nested containers)."""
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
    """Returns ``text`` in at most ``limit`` characters, without the middle: paths and names differ at their ends."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) * 2 // 3
    return text[: limit - 1 - tail] + "…" + text[len(text) - tail :]


def in_ascii(text: str) -> str:
    """Returns ``text`` in ASCII: drawings and signs as similar characters, the rest as escapes."""
    return text.encode("ascii", FALLBACK).decode("ascii")


def _fallback(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(char) or _escape(char) for char in error.object[error.start : error.end]), error.end


codecs.register_error(FALLBACK, _fallback)
