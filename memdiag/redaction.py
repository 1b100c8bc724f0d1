"""Removes paths, user names, and addresses of people and machines from text, for ``--redact``.

Function names, line numbers and base names of files stay.

A trace is redacted when it is read (``memdiag.sources.redacted``), so everything derived from it is redacted too. The
text of reports also goes through ``redact_text``. The switch is an environment variable, so that worker processes have
it too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

VARIABLE = "MEMDIAG_REDACT"
USER, ELSEWHERE = "[user]", "…"

# Paths are kept from one of these folders on: the name of a library identifies nobody, and analyzers depend on it.
_LIBRARY = re.compile(
    r"(?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3(?:\.\d+)?[/\\]|memdiag[/\\]recorder[/\\]"
)
_INDUCTOR = re.compile(r"[/\\]torchinductor_[^/\\]*")
_HOME = re.compile(
    r"(?:/home/|/Users/|/users/|/private/var/|[A-Za-z]:\\{1,2}Users\\{1,2}|torchinductor_)([^/\\\s\"'<>|:;,*?]+)"
)
_PART = r"[^\s/\\\"'`<>|:;,*?(){}\[\]]+"
# A plain string instead of a compiled pattern: every command imports this file, but few redact.
_PLACES = (
    rf"(?P<web>https?://)(?:[^\s/@\"'<>]+@)?(?P<rest>[^\s\"'<>]*)"  # the page stays; credentials before it are removed
    rf"|(?P<store>(?<![\w+])[a-z][a-z0-9+]*://)[^\s\"'<>]*"
    rf"|(?P<windows>\b[A-Za-z]:(?:\\{{1,2}}{_PART})+)"
    # In JSON, an escaped \n may precede the path.
    rf"|(?:(?<![\w.%])|(?<=\\[nrt]))(?P<path>(?:~|\.\.?)?(?:/{_PART}){{2,}}/?|~/{_PART})"
    rf"|(?<![\w.+-])(?P<mail>[\w.+-]+@[\w-][\w.-]*)"
)
_FIELD_WORDS = frozenset(
    {  # machine accounts, and names that are ordinary words in reports
        "root",
        "user",
        "users",
        "home",
        "admin",
        "ubuntu",
        "train",
        "model",
        "torch",
        "python",
        "data",
        "test",
        "runner",
        "work",
        "cuda",
        "npu",
        "shared",
        "public",
        "default",
    }
)
_SHORTEST = 3  # characters: a user called "a" cannot be distinguished from a word

_LONGEST = 255  # characters: longest name that a file system accepts
_BEGINNINGS = rf"(?s)(?<![A-Za-z0-9])(?=(.{{{_SHORTEST}}}))"  # where a name may begin, and its first characters

_users: set[str] = set()
_lengths: dict[str, list[int]] = {}  # by first characters; one pattern of 100,000 names would take hours
_given: list[re.Pattern[str] | None] = [None]


def is_on() -> bool:
    """Returns whether everything is to be redacted."""
    return os.environ.get(VARIABLE, "") not in {"", "0"}


def turn_on() -> None:
    """Enables redaction in this process and in the processes it starts."""
    os.environ[VARIABLE] = "1"
    note_users(filter(None, (os.environ.get(name) for name in ("USER", "LOGNAME", "USERNAME"))))
    note_users(_HOME.findall(os.environ.get("HOME", "") + "/"))


def note_users(names: Iterable[str]) -> None:
    """Adds user names to remove from all text."""
    for name in names:
        if not _SHORTEST <= len(name) <= _LONGEST or name.lower() in _FIELD_WORDS or name.isdecimal() or name in _users:
            continue
        _users.add(name)
        lengths = _lengths.setdefault(name[:_SHORTEST], [])
        if len(name) not in lengths:
            lengths.append(len(name))
            lengths.sort(reverse=True)


def note_given(arguments: Iterable[str]) -> None:
    """Adds relative paths from a command line, so that their folders are removed from all text.

    Without this list, a relative folder cannot be distinguished from words.
    """
    folders = set()
    for path in (argument.rpartition("=")[2] for argument in arguments):
        if path.startswith(("/", "~")) or "://" in path:
            continue
        # Tests the path exactly as typed.
        folder = path.rstrip("/") if os.path.isdir(path) else path.rpartition("/")[0]  # noqa: PTH112
        if folder.strip("./") and os.path.isdir(folder):  # noqa: PTH112
            folders.add(re.escape(folder))
    words = "|".join(sorted(folders, key=len, reverse=True))
    _given[0] = re.compile(rf"(?<![\w./-])(?:{words})/+") if words else None


def note_homes(paths: Iterable[str]) -> None:
    """Adds the users whose home directories occur in ``paths``."""
    note_users({name for path in paths for name in _HOME.findall(path)})


def redact_path(path: str) -> str:
    """Returns a path without personal parts: from the library's folder on, otherwise only the file name."""
    library = None
    # Use the last match: an environment may be inside a folder of the same name.
    for library in _LIBRARY.finditer(path):  # noqa: B007
        pass
    if library is not None:
        return redact_names(path[library.start() :].replace("\\", "/"))
    name = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
    if (cache := _INDUCTOR.search(path)) is not None and cache.end() < len(path):
        return f"/torchinductor_/{redact_names(name)}"
    return redact_names(name)


def redact_names(text: str) -> str:
    """Returns ``text`` without known user names."""
    if not _users:
        return text
    pieces, done = [], 0
    for begin in re.finditer(_BEGINNINGS, text):
        at = begin.start()
        for length in _lengths.get(begin[1], ()) if at >= done else ():
            after = text[at + length : at + length + 1]
            if text[at : at + length] in _users and not (after.isascii() and after.isalnum()):
                pieces += [text[done:at], USER]
                done = at + length
                break
    return "".join([*pieces, text[done:]])


def redact_text(text: str) -> str:
    """Returns ``text`` with paths cut to the file name, and without users and addresses."""
    note_homes([text])
    text = _given[0].sub("", text) if _given[0] is not None else text
    return redact_names(re.sub(_PLACES, _placed, text))


def _placed(found: re.Match[str]) -> str:
    if found["web"]:
        return found["web"] + found["rest"]
    if found["mail"]:
        return USER
    path = found["path"] or found["windows"] or found[0]
    if _LIBRARY.search(path):
        return redact_path(path)
    name = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
    kept = name if "." in name.strip(".") else ""
    return (found["store"] or "") + (f"{ELSEWHERE}/{kept}" if found["store"] else kept or ELSEWHERE)
