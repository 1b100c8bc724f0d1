"""Results kept from run to run, a small file for each rank, so that a second run goes on where the first one ended.

A result counts as long as the file, memdiag and the options are the same. Each is written beside and then renamed: a
kill at any moment leaves whole ones. What could not be read is not kept: it may be there next time.
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
from memdiag.version import __version__

FOLDER = "ranks"
_WORD = re.compile(r"[^A-Za-z0-9.]+")
_LONGEST = 48


class ResultStore:
    """A folder of results.

    Args:
        folder: Where; made if it is not there.

    Raises:
        MemdiagError: It cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MemdiagError(
                f"-o {folder}: {error.strerror or error}", "name a folder that can be written to"
            ) from None

    def get(self, file: File, task: Task) -> Result | None:
        """Returns what is kept of a task; None: nothing that still holds."""
        if not file.stamp:  # nothing would tell that it has changed
            return None
        try:
            kept = json.loads(self._path(file, task).read_bytes())
            result: Result = kept["result"]
            return result if kept["of"] == _key(file, task) and isinstance(result.get("facts"), dict) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def put(self, file: File, task: Task, result: Result) -> None:
        """Keeps the result of a task.

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
    """Returns what a result depends on, as a hash: it tells nobody where the file was."""
    options = {key: value for key, value in task.items() if key not in {"url", "name"}}
    key = [file.url, file.size, file.stamp, __version__, VERSION, sorted(options.items())]
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()
