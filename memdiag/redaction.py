"""What ``--redact`` takes out of text: paths, user names, addresses of people and machines.

Function names, lines and file names stay.

A trace is redacted when it is read (``memdiag.sources.redacted``), so that nothing that is made of it knows more; the
text of reports goes through ``redact_text`` once more. The switch is an environment variable, so that worker processes
have it too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

VARIABLE = "MEMDIAG_REDACT"
USER, ELSEWHERE = "[user]", "…"

# A path keeps what stands behind one of these: which library a frame is of tells nothing of anyone, and analyzers go by
# it.
_LIBRARY = re.compile(
    r"(?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3(?:\.\d+)?[/\\]|memdiag[/\\]recorder[/\\]"
)
_INDUCTOR = re.compile(r"[/\\]torchinductor_[^/\\]*")
_HOME = re.compile(
    r"(?:/home/|/Users/|/users/|/private/var/|[A-Za-z]:\\{1,2}Users\\{1,2}|torchinductor_)([^/\\\s\"'<>|:;,*?]+)"
)
_PART = r"[^\s/\\\"'`<>|:;,*?(){}\[\]]+"
# Text until it is used, when re keeps what it compiled: every command loads this file, and few redact.
_PLACES = (
    rf"(?P<web>https?://)(?:[^\s/@\"'<>]+@)?(?P<rest>[^\s\"'<>]*)"  # a page stays, the name and password before it go
    rf"|(?P<store>(?<![\w+])[a-z][a-z0-9+]*://)[^\s\"'<>]*"
    rf"|(?P<windows>\b[A-Za-z]:(?:\\{{1,2}}{_PART})+)"
    # in JSON, \n may stand before it
    rf"|(?:(?<![\w.%])|(?<=\\[nrt]))(?P<path>(?:~|\.\.?)?(?:/{_PART}){{2,}}/?|~/{_PART})"
    rf"|(?<![\w.+-])(?P<mail>[\w.+-]+@[\w-][\w.-]*)"
)
_FIELD_WORDS = frozenset(
    {  # accounts of machines, and names that are words of every report
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
_SHORTEST = 3  # characters: a user called "a" cannot be told from a word

_LONGEST = 255  # characters: what a file system takes for one name
_BEGINNINGS = rf"(?s)(?<![A-Za-z0-9])(?=(.{{{_SHORTEST}}}))"  # where a name may stand, and how it would begin

_users: set[str] = set()
_lengths: dict[
    str, list[int]
] = {}  # by how names begin, the longest first: a pattern of 100,000 names, compiled anew for each, takes hours
_given: list[re.Pattern[str] | None] = [None]


def is_on() -> bool:
    """Whether everything is to be redacted."""
    return os.environ.get(VARIABLE, "") not in {"", "0"}


def turn_on() -> None:
    """Redacts everything from here on, in this process and those it starts."""
    os.environ[VARIABLE] = "1"
    note_users(filter(None, (os.environ.get(name) for name in ("USER", "LOGNAME", "USERNAME"))))
    note_users(_HOME.findall(os.environ.get("HOME", "") + "/"))


def note_users(names: Iterable[str]) -> None:
    """Remembers names of users, to be taken out wherever they stand."""
    for name in names:
        if not _SHORTEST <= len(name) <= _LONGEST or name.lower() in _FIELD_WORDS or name.isdecimal() or name in _users:
            continue
        _users.add(name)
        lengths = _lengths.setdefault(name[:_SHORTEST], [])
        if len(name) not in lengths:
            lengths.append(len(name))
            lengths.sort(reverse=True)


def note_given(arguments: Iterable[str]) -> None:
    """Remembers relative paths of a command line, so that their folders go wherever they stand: nothing else tells them from words."""
    folders = set()
    for path in (argument.rpartition("=")[2] for argument in arguments):
        if path.startswith(("/", "~")) or "://" in path:
            continue
        folder = path.rstrip("/") if os.path.isdir(path) else path.rpartition("/")[0]  # noqa: PTH112 - what was typed, as it was
        if folder.strip("./") and os.path.isdir(folder):  # noqa: PTH112
            folders.add(re.escape(folder))
    words = "|".join(sorted(folders, key=len, reverse=True))
    _given[0] = re.compile(rf"(?<![\w./-])(?:{words})/+") if words else None


def note_homes(paths: Iterable[str]) -> None:
    """Remembers the users whose homes stand in ``paths``."""
    note_users({name for path in paths for name in _HOME.findall(path)})


def redact_path(path: str) -> str:
    """Returns a path as far as it tells of no one: from the library's folder on, else the name of the file."""
    library = None
    for library in _LIBRARY.finditer(path):  # noqa: B007 - the last one: an environment may lie in a folder of the same name
        pass
    if library is not None:
        return redact_names(path[library.start() :].replace("\\", "/"))
    name = re.split(r"[/\\]", path.rstrip("/\\"))[-1]
    if (cache := _INDUCTOR.search(path)) is not None and cache.end() < len(path):
        return f"/torchinductor_/{redact_names(name)}"
    return redact_names(name)


def redact_names(text: str) -> str:
    """Returns ``text`` without the names of users that are known."""
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
    """Returns ``text`` with paths cut to the name of their file, and without users and addresses."""
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
