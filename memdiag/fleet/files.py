"""Finds the files of a fleet, and the rank of each.

A directory is a run of ``memdiag record`` (rank0.pkl, rank1.pkl …), several runs (one for each machine of a job), or
any directory with snapshots below it. Files are in the natural order of their names, so that 2 comes before 10.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.fleet.fetch import PACKED, fsspec, is_url
from memdiag.text import phrase

_RECORDED = re.compile(r"rank(\d+)\.pkl")
_RANK = re.compile(r"(?<![a-zA-Z])rank[_.=-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_NUMBER = re.compile(r"[._-](\d{1,7})(?=(?:\.[A-Za-z]\w*)+$)")
_DIGITS = re.compile(r"(\d+)")
_SNAPSHOTS = (".pkl", ".pickle")
_OTHERS = (".html", ".npz", ".csv", ".db", ".json")
_NOT_TRACES = frozenset({"manifest.json", "find-max.json", "fleet.json"})
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class File:
    """One file of a fleet.

    Attributes:
        url: Absolute path, or address.
        name: Name in reports: as given.
        size: Bytes, or None if unknown.
        stamp: Changes with the file: its modification time, or the object store's equivalent.
    """

    url: str
    name: str
    size: int | None = None
    stamp: str = ""


def find(given: Iterable[str]) -> tuple[list[File], list[str]]:
    """Returns the distinct files for paths, patterns and addresses, and remarks on the choice.

    Raises:
        MemdiagError: One matches nothing, or cannot be listed.
    """
    files: dict[str, File] = {}
    said: list[str] = []
    for text in given:
        found = _remote(text) if is_url(text) else _local(text, said)
        if not found:
            raise MemdiagError(phrase("errors.no-trace-files", text=str(text)), phrase("errors.no-trace-files.hint"))
        files |= {file.url: file for file in found if file.url not in files}
    return list(files.values()), said


def number_of(name: str) -> int | None:
    """Returns the rank in a name.

    The name is that of the file (rank12.pkl, x_rank_12_y.pickle, trace.12.pickle), else of a folder. It may be None.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    for part in (path.name, *(parent.name for parent in path.parents)):
        if found := _RANK.search(part):
            return int(found[1])
    last = _NUMBER.search(path.name)
    return int(last[1]) if last else None


def natural(name: str) -> list[Any]:
    """Returns a sort key for the natural order of names: rank2 before rank10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name) if part]


def _local(text: str, said: list[str]) -> list[File]:
    path = Path(text)
    if path.is_dir():
        return [_file(each) for each in _in_folder(path, said)]
    if path.exists() or not _MAGIC.search(text):
        return [_file(path)]  # even a missing file: a rank without its file is broken
    # Path.glob accepts no absolute pattern.
    matches = sorted(glob.glob(text, recursive=True), key=natural)  # noqa: PTH207
    return [
        _file(inside)
        for match in matches
        for inside in (_in_folder(Path(match), said) if Path(match).is_dir() else [Path(match)])
    ]


def _file(path: Path) -> File:
    absolute = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links: the given name is shown
    try:
        state = path.stat()
    except OSError:
        return File(absolute, str(path))
    return File(absolute, str(path), state.st_size, str(state.st_mtime_ns))


def _in_folder(folder: Path, said: list[str]) -> list[Path]:
    own = _recorded(folder)
    if own:
        return own
    runs = sorted(
        (ranks for run in folder.glob("memdiag-*") if run.is_dir() and (ranks := _recorded(run))),
        key=_written,
        reverse=True,
    )
    if runs:
        return _one_job(runs, said)
    below = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(_traces(below), key=lambda path: natural(str(path)))


def _recorded(folder: Path) -> list[Path]:
    """Returns the ranks of a run of ``memdiag record``."""
    return sorted(
        (path for path in folder.glob("rank*.pkl") if _RECORDED.fullmatch(path.name)),
        key=lambda path: natural(path.name),
    )


def _written(ranks: Sequence[Path]) -> int:
    return max(path.stat().st_mtime_ns for path in ranks)


def _one_job(runs: Sequence[list[Path]], said: list[str]) -> list[Path]:
    """Returns the files of the newest job.

    They are the newest run, and older ones with ranks that it lacks (from other machines).
    """
    taken: dict[str, Path] = {}
    left_out = 0
    for ranks in runs:
        names = {path.name for path in ranks}
        if names & taken.keys():
            left_out += 1
        else:
            taken |= {path.name: path for path in ranks}
    if left_out:
        said.append(phrase("fleet.older", count=left_out))
    return [taken[name] for name in sorted(taken, key=natural)]


def _traces(paths: Iterable[Any]) -> list[Any]:
    """Returns files that look like traces: snapshots if there are any, else files of other formats."""
    paths = [path for path in paths if PurePosixPath(path).name not in _NOT_TRACES]
    for suffixes in (_SNAPSHOTS, _OTHERS):
        if found := [path for path in paths if _inner_suffix(str(path)) in suffixes]:
            return found
    return []


def _inner_suffix(name: str) -> str:
    path = PurePosixPath(name)
    if path.suffix.lower() in {".gz", *PACKED}:
        path = PurePosixPath(path.stem)
    return path.suffix.lower()


def _remote(text: str) -> list[File]:
    module = fsspec()
    try:
        system, path = module.core.url_to_fs(text)
        if _MAGIC.search(path):
            paths = sorted(system.glob(path), key=natural)
        elif system.isdir(path):
            below = sorted(system.find(path), key=natural)
            own = [each for each in below if _RECORDED.fullmatch(PurePosixPath(each).name)]
            paths = own or _traces(below)
        else:
            paths = [path]
        return [_of_store(system, each) for each in paths]
    except Exception as error:  # noqa: BLE001 - each file system raises its library's exceptions
        raise MemdiagError(
            phrase("errors.not-listed", text=str(text), value=str(str(error) or type(error).__name__)),
            phrase("errors.not-listed.hint"),
        ) from None


def _of_store(system: Any, path: str) -> File:
    url = str(system.unstrip_protocol(path))
    plain = File(url, url)
    try:
        about = system.info(path)
        stamp = next(
            (
                str(about[key])
                for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "updated", "created")
                if key in about
            ),
            "",
        )
        return replace(plain, size=about.get("size"), stamp=stamp)
    except OSError:
        return plain
