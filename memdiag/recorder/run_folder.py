"""The files of a run, in memdiag's own process: memdiag-<run>/ with rank<k>.pkl and manifest.json, and ./trace.pkl.

A run's name is its time in UTC, so names sort by time everywhere; creating the folder claims the name.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import shutil
import time
from dataclasses import dataclass
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.text import phrase

from .files import write_json

TRACE = "trace.pkl"
MANIFEST = "manifest.json"
ROOM = 16 << 10  # bytes: a disk without them is full, since the smallest trace needs more
_RANK = re.compile(r"rank(\d+)(\.[a-z]+)?\.pkl")
_KEY = b"\x8c\x07memdiag\x94"  # the extra key of a snapshot as pickle writes it; its value follows directly


@dataclass(frozen=True)
class RunFolder:
    """Output location of a run.

    Attributes:
        path: Its folder, absolute, so that programs that change their directory find it.
        single: Additional path for the trace of a run of one process, or "" for none.
        was_made: Whether the folder was created for this run.
    """

    path: str
    single: str
    was_made: bool = True

    @property
    def shown(self) -> str:
        """The folder as a path relative to the current directory where possible."""
        return shown(self.path)


def make(output: str | None) -> RunFolder:
    """Creates the folder of a new run.

    Args:
        output: None for memdiag-<run>/ in the current directory. A name that ends in .pkl or .pickle: the trace of a
            run of one process is also written there, with memdiag-<run>/ next to it. Another name: the folder itself if
            it is new or empty, else memdiag-<run>/ in it.

    Raises:
        MemdiagError: It cannot be created or written to; this is checked before hours of training.
    """
    here = os.getcwd()
    try:
        if output is None:
            return RunFolder(_new_in(here), os.path.join(here, TRACE))
        given = os.path.abspath(output)
        if given.endswith((".pkl", ".pickle")) and not os.path.isdir(given):
            os.makedirs(os.path.dirname(given), exist_ok=True)
            return RunFolder(_new_in(os.path.dirname(given)), given)
        existed = os.path.isdir(given)
        os.makedirs(given, exist_ok=True)
        single = os.path.join(here, TRACE)
        if os.listdir(given):
            return RunFolder(_new_in(given), single)
        _check(given)
        return RunFolder(given, single, was_made=not existed)
    except OSError as error:
        where = error.filename or output or here
        raise MemdiagError(
            phrase("record.not-written", path=str(where), error=str(error.strerror or error)),
            phrase("record.not-written.hint"),
        ) from None


def _new_in(parent: str) -> str:
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for number in range(1, 1000):
        path = os.path.join(parent, f"memdiag-{moment}" + (f"-{number:03}" if number > 1 else ""))
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(0, "a thousand runs began in this second", parent)


def _check(folder: str) -> None:
    probe = os.path.join(folder, ".writable")
    with open(probe, "x", encoding="ascii"):
        pass
    os.unlink(probe)


def shown(path: str) -> str:
    """Returns a path relative to the current directory where possible."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def remove(folder: RunFolder) -> None:
    """Removes a folder in which only memdiag itself has written."""
    remove_file(os.path.join(folder.path, MANIFEST))
    if folder.was_made:
        with contextlib.suppress(OSError):
            os.rmdir(folder.path)


def clear(folder: RunFolder) -> None:
    """Removes the files that a run wrote, and its folder if it was made for the run and nothing else is in it."""
    for path in traces(folder.path):
        remove_file(path)
        remove_file(path[:-4] + ".json")
    remove(folder)


def remove_file(path: str) -> None:
    """Removes a file if it exists and can be removed."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def traces(folder: str) -> list[str]:
    """Returns the paths of the traces of a run, in order of rank."""
    found = []
    with contextlib.suppress(OSError):
        found = [
            (int(match.group(1)), match.group(2) or "", name)
            for name in os.listdir(folder)
            if (match := _RANK.fullmatch(name))
        ]
    return [os.path.join(folder, name) for _, _, name in sorted(found)]


def statuses(folder: str) -> list[dict[str, Any]]:
    """Returns the status files of the recorded processes, in order of rank, each with its "trace" and "bytes"."""
    said = []
    for path in traces(folder):
        if os.path.basename(path).count(".") > 1:
            continue  # a second backend of the same process
        status = read_json(path[:-4] + ".json") or {}
        with contextlib.suppress(OSError):
            status["bytes"] = os.path.getsize(path)
        said.append({**status, "trace": path})
    return said


def read_json(path: str) -> dict[str, Any] | None:
    """Returns the content of a JSON file, or None if it is missing or unreadable."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_manifest(folder: RunFolder, content: dict[str, Any]) -> bool:
    """Writes manifest.json; returns whether it succeeded."""
    return write_json(os.path.join(folder.path, MANIFEST), content, has_ended=content.get("status") == "ended")


def why_unwritable(folder: str) -> str:
    """Returns why the folder of a run is not writable, such as ``No space left on device``, or "" if it is."""
    probe = os.path.join(folder, f".room.{os.getpid()}")
    try:
        with open(probe, "wb") as file:
            file.write(bytes(ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(probe)
    return ""


def leave_single(trace: str, wanted: str) -> str:
    """Makes a trace available under its short name as well, as a hard link if possible.

    A file that memdiag did not record is never overwritten: the next free name is used (trace-2.pkl).

    Returns:
        The path used.

    Raises:
        OSError: It failed, and no file remains there.
    """
    stem, suffix = os.path.splitext(wanted)
    for number in range(1, 1000):
        path = wanted if number == 1 else f"{stem}-{number}{suffix}"
        if os.path.lexists(path) and not _is_ours(path):
            continue
        beside = f"{path}.{os.getpid()}.part"
        try:
            try:
                os.link(trace, beside)
            except OSError:
                shutil.copyfile(trace, beside)
            os.replace(beside, path)
            with contextlib.suppress(OSError):
                os.unlink(beside)  # rename does nothing for two names of the same file
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
        return path
    raise FileExistsError(0, "a thousand files have this name", wanted)


def _is_ours(path: str) -> bool:
    """Returns whether a file is a trace that memdiag recorded."""
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.rfind(_KEY)
            return at >= 0 and b"\x8c\x06format" in content[at : at + 64]
    except (OSError, ValueError):  # an empty file cannot be mapped
        return False
