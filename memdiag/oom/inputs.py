"""Inputs of ``memdiag oom``: logs, folders of logs, a pipe, or the text of a message.

An argument that exists is a file or a folder; any other is a text. A mistyped file name would count as a text. So a
text without a message that looks like a file name is an error, not "nothing found".
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from memdiag.errors import MemdiagError
from memdiag.oom.archives import ZIP_MAGIC, archive_of, is_archive
from memdiag.quoting import file_argument
from memdiag.text import Phrase, joined, phrase

STDIN, TEXT = "-", "text"
EXAMPLE = 'memdiag oom "CUDA out of memory. Tried to allocate 1.50 GiB. …"'
USAGE = f"""memdiag oom explains an out-of-memory message, or all that a log has:

  memdiag oom train.log              a log, of any length; several, or a folder, too
  python train.py 2>&1 | memdiag oom -
  {EXAMPLE}

memdiag oom --help says more.
"""
_NAME = re.compile(r"[^\n]{1,500}")
_NAME_LIKE = re.compile(r"[/\\*]|\.[A-Za-z][A-Za-z0-9]{0,5}$")
_LOG_ARCHIVES = {".zip", ".tar"}  # in a folder; models and packages are archives with other endings
_TORCH_SAVE = b"/data.pkl"  # such a file is a zip
_MESSAGE_WORDS = 3  # without quotes; fewer are names
_HEAD = 4096
# first bytes of UTF-16 and of compressed files, which contain null bytes
_WITH_NULS = (
    b"\xff\xfe",
    b"\xfe\xff",
    b"\x1f\x8b",
    b"\xfd7zXZ\0",
    b"BZh",
    b"\x28\xb5\x2f\xfd",
)


class OomInput(NamedTuple):
    """One input: ``path`` is None for standard input and for text, ``text`` is None for the others."""

    name: str
    path: Path | None = None
    text: str | None = None


def choose(
    given: Sequence[str], *, has_message: Callable[[str], bool], say: Callable[[str], None] | None = None
) -> list[OomInput]:
    """Returns the inputs, in the given order; none without arguments if standard input is a terminal.

    Args:
        given: The arguments.
        has_message: Returns whether a text has an out-of-memory message.
        say: Receives one line about skipped files of a folder; None to drop it.

    Raises:
        MemdiagError: A file does not exist, or a folder contains no logs.
    """
    if not given:
        return [] if _is_terminal() else [OomInput(STDIN)]
    if _is_one_message(given) and has_message(" ".join(given)):
        return [OomInput(TEXT, text=" ".join(given))]
    chosen: list[OomInput] = []
    words: list[str] = []
    for argument in given:
        if argument == STDIN:
            chosen.append(OomInput(STDIN))
        elif _exists(argument):
            chosen += _files(Path(argument), say)
        elif _is_link(argument):  # to nothing, or to itself: reading it says so
            chosen.append(OomInput(argument, Path(argument)))
        elif archive_of(argument) is not None:
            chosen.append(OomInput(argument, archive_of(argument)))
        else:
            words.append(argument)
    if not words:
        return _once(chosen)
    text = " ".join(words)  # an unquoted message arrives as many words
    missing = next((word for word in words if looks_like_a_file(word)), None)
    is_message = not chosen and len(words) >= _MESSAGE_WORDS and has_message(text)
    if missing is not None and not is_message and not has_message(missing):
        raise MemdiagError(
            phrase("errors.oom-missing", missing=str(missing)), phrase("errors.oom-missing.hint", example=str(EXAMPLE))
        )
    return _once([*chosen, OomInput(TEXT, text=text)])


def _is_one_message(given: Sequence[str]) -> bool:
    """Returns whether arguments are the words of one message without quotes: one may be the name of a folder, too."""
    named = [argument for argument in given if _exists(argument)]
    return len(given) - len(named) >= _MESSAGE_WORDS and not any(map(looks_like_a_file, named)) and STDIN not in given


def looks_like_a_file(word: str) -> bool:
    """Returns whether a text may be a file name: one short line with a slash or a suffix."""
    return bool(_NAME.fullmatch(word) and _NAME_LIKE.search(word)) and ": " not in word


def is_binary(head: bytes) -> bool:
    """Returns whether a file that begins with ``head`` is binary.

    It has a NUL, and is neither UTF-16 nor compressed.
    """
    return b"\0" in head[:_HEAD] and not head.startswith(_WITH_NULS)


def split_trace(given: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Returns the only memory trace among the arguments, None for none or several, and the other arguments.

    A trace is a pickle, or the folder of a recording.
    """
    traces = [argument for argument in given if argument != STDIN and _exists(argument) and _is_trace(Path(argument))]
    if len(traces) != 1:
        return None, list(given)
    return Path(traces[0]), [argument for argument in given if argument != traces[0]]


def _is_trace(path: Path) -> bool:
    try:
        if path.is_dir():
            return (path / "manifest.json").is_file() and any(path.glob("rank*.pkl"))
        with path.open("rb") as file:
            head = file.read(2)
        if head == b"\x1f\x8b":
            import gzip

            with gzip.open(path) as unzipped:
                head = unzipped.read(2)
    except (OSError, EOFError, zlib.error):
        return False
    return head[:1] == b"\x80" and head[1:] in {b"\2", b"\3", b"\4", b"\5"}  # the protocol of a pickle


def check_text(chosen: Sequence[OomInput], read: Sequence[str]) -> None:
    """Raises MemdiagError if one of the files, none of which contains a message, is binary.

    Args:
        chosen: The files and texts.
        read: Names of the texts that were read: those of an archive, for example.
    """
    for item in chosen:
        if item.path is not None and item.path.is_file():
            with item.path.open("rb") as file:
                head = file.read(_HEAD)
                if is_archive(head) and any(name.startswith(item.name) for name in read):
                    continue
                if head.startswith(ZIP_MAGIC) and _TORCH_SAVE not in head:
                    raise MemdiagError(
                        phrase("errors.oom-no-texts", path=str(item.path)),
                        phrase("errors.oom-unpack", command=f"unzip {file_argument(str(item.path))}"),
                    )
                if is_binary(head):
                    hint = "for a memory trace: memdiag analyze FILE, or memdiag oom --from-trace FILE"
                    raise MemdiagError(phrase("errors.no-text", name=str(item.name)), hint)


def _is_terminal() -> bool:
    try:
        return sys.stdin is None or sys.stdin.closed or sys.stdin.isatty()
    except (OSError, ValueError):
        return True


def _exists(argument: str) -> bool:
    try:
        return bool(argument) and Path(argument).exists()
    except (OSError, ValueError):  # too long for a name, or contains a NUL: a text
        return False


def _is_link(argument: str) -> bool:
    try:
        return Path(argument).is_symlink()
    except (OSError, ValueError):  # too long for a name, or contains a NUL
        return False


def _once(chosen: list[OomInput]) -> list[OomInput]:
    return list(dict.fromkeys(chosen))


def _files(path: Path, say: Callable[[str], None] | None) -> list[OomInput]:
    """Returns the file itself, or the logs in a folder."""
    if not path.is_dir():
        return [OomInput(str(path), path)]
    found, num_binary, unread = [], 0, 0
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder) / name
            if name.startswith(".") or not file.is_file():
                continue
            try:
                with file.open("rb") as stream:
                    head = stream.read(_HEAD)
            except OSError:
                unread += 1
                continue
            if is_binary(head) and not (is_archive(head) and file.suffix.lower() in _LOG_ARCHIVES):
                num_binary += 1
            elif head:
                found.append(OomInput(str(file), file))
    left: list[Phrase] = []
    if num_binary:
        left.append(phrase("oom.left.binary", count=num_binary))
    if unread:
        left.append(phrase("oom.left.unread", count=unread))
    omitted = joined(left, phrase("oom.left.and"))
    if not found:
        raise MemdiagError(
            phrase("oom.no-logs.left", path=str(path), left=omitted) if left else phrase("oom.no-logs", path=str(path)),
            phrase("errors.oom-log"),
        )
    if left and say is not None:
        say(phrase("oom.left", path=str(path), left=omitted))
    return found
