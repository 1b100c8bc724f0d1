"""Stores results between runs, a small file for each rank, so that a second run continues where the first ended.

A result is valid as long as the file, memdiag and the options are the same. Each is written to a temporary file and
then renamed, so a kill at any moment leaves complete ones. Results of unreadable files are not stored: they may be
readable next time.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path, PurePosixPath

from memdiag.errors import MemdiagError
from memdiag.fleet.facts import VERSION
from memdiag.fleet.files import File
from memdiag.fleet.work import Result, Task
from memdiag.output_file import write_whole
from memdiag.text import phrase
from memdiag.version import __version__

FOLDER = "ranks"
_WORD = re.compile(r"[^A-Za-z0-9.]+")
_LONGEST = 48


class ResultStore:
    """A folder of results.

    Args:
        folder: The folder, created if necessary.

    Raises:
        MemdiagError: It cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MemdiagError(f"-o {folder}: {error.strerror or error}", phrase("errors.writable-folder")) from None

    def get(self, file: File, task: Task) -> Result | None:
        """Returns the stored result of a task, or None if there is no valid one."""
        if not file.stamp:  # without a stamp, changes cannot be detected
            return None
        try:
            kept = json.loads(self._path(file, task).read_bytes())
            result: Result = kept["result"]
            return result if kept["of"] == _key(file, task) and isinstance(result.get("facts"), dict) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, file: File, task: Task, result: Result) -> None:
        """Stores the result of a task.

        Raises:
            MemdiagError: It cannot be written.
        """
        if "facts" not in result or not file.stamp:
            return
        path = self._path(file, task)
        write_whole(
            path, json.dumps({"of": _key(file, task), "result": result}, separators=(",", ":"), allow_nan=False)
        )

    def _path(self, file: File, task: Task) -> Path:
        own = hashlib.sha256(json.dumps([file.url, task["action"]]).encode()).hexdigest()[:16]
        word = _WORD.sub("-", PurePosixPath(file.name).name)[-_LONGEST:].strip("-.")
        return self._folder / f"{word}-{own}.json"


def _key(file: File, task: Task) -> str:
    """Returns a hash of everything a result depends on, which does not reveal the path of the file."""
    options = {key: value for key, value in task.items() if key not in {"url", "name"}}
    key = [file.url, file.size, file.stamp, __version__, VERSION, sorted(options.items())]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()
