"""Redacts recordings in place: the files of ``memdiag --redact record``.

The result is a genuine snapshot with all its events. Nothing in it is executed: anything but plain values is refused.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from memdiag.errors import RefusedFile
from memdiag.recorder.columns import Unpacker, pack_bytes
from memdiag.recorder.files import write_json
from memdiag.recorder.run_folder import read_json
from memdiag.redaction import note_homes, redact_path, redact_text
from memdiag.sources.redacted import conf_text
from memdiag.text import phrase
from memdiag.trace.snapshot_fields import PYTORCHS_WORDS

# Keys of the recorder's data and of the manifest that identify user, command or machine. They are removed completely.
_PRIVATE = frozenset({"argv", "cwd", "host", "hostname", "user", "executable", "python", "prefix", "folder", "file"})
_TABLES = frozenset({"marks", "modules", "tensors"})  # in the recorder's key: columns of numbers


def redact_snapshot(path: Path) -> None:
    """Rewrites a snapshot without paths, users, command line and environment.

    Raises:
        RefusedFile: It is damaged, or contains anything but plain values.
    """
    try:
        with path.open("rb") as file:
            content = _Plain(file).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        OSError,
    ) as error:
        raise _refused(path, error) from None
    redact_content(content)
    with _anew(path) as file:
        pickle.dump(content, file, protocol=4)


def redact_lines(path: Path) -> None:
    """Rewrites a text, such as the output of a program, without paths, users and addresses.

    Raises:
        RefusedFile: It cannot be read or written.
    """
    with _anew(path) as file, path.open("rb") as lines:
        for line in lines:
            file.write(redact_text(line.decode("utf-8", "replace")).encode())


@contextlib.contextmanager
def _anew(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that replaces another one once it is complete."""
    scratch = path.with_name(f".{path.name}.redacted")
    try:
        with scratch.open("wb") as file:
            yield file
        scratch.replace(path)
    except OSError as error:
        raise _refused(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def _refused(path: Path, error: Exception) -> RefusedFile:
    return RefusedFile(
        phrase("errors.not-redacted", path=str(path), error=str(error)), phrase("errors.not-redacted.hint")
    )


def redact_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the manifest of a run, or a part of it, without identifying data."""
    kept = {key: value for key, value in manifest.items() if key not in _PRIVATE}
    _Walk().visit(kept)
    return kept


def redact_content(content: Any) -> None:
    """Redacts the text in nested dicts and lists, each text once."""
    walk = _Walk()
    walk.note(content)
    walk.visit(content)


class _Plain(pickle.Unpickler):
    """Reads builtin containers, numbers, bytes and text."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuses every global."""
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


class _Walk:
    """Walks nested containers; equal texts and shared containers are processed once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._texts: dict[tuple[bool, str], str] = {}

    def note(self, value: Any) -> None:
        """Adds the users whose home directories occur in frames, so that their names are removed everywhere."""
        paths: set[str] = set()
        _each_filename(value, paths.add, set())
        note_homes(paths)

    def visit(self, value: Any) -> None:
        """Changes a container in place."""
        if id(value) in self._seen:
            return
        if isinstance(value, dict):
            self._seen.add(id(value))
            for key in [key for key in value if key in _PRIVATE]:
                del value[key]
            for key, item in list(value.items()):
                value[key] = _repacked(item) if key in _TABLES and isinstance(item, dict) else self._changed(key, item)
        elif isinstance(value, list):
            self._seen.add(id(value))
            for row, item in enumerate(value):
                if isinstance(item, str | dict | list | tuple):
                    value[row] = self._changed("", item)

    def _changed(self, key: object, item: Any) -> Any:
        if isinstance(item, str):
            if key in PYTORCHS_WORDS:
                return item
            if isinstance(key, str) and key.endswith("ALLOC_CONF"):
                return conf_text(item)
            return self._text(item, is_path=key == "filename")
        if key == "environment" and isinstance(item, dict):
            return {name: conf_text(text) for name, text in item.items() if str(name).endswith("ALLOC_CONF")}
        if isinstance(item, tuple):
            return (
                tuple(self._changed("", each) for each in item)
                if any(isinstance(each, str | dict | list) for each in item)
                else item
            )
        if isinstance(item, dict | list):
            self.visit(item)
        return item

    def _text(self, text: str, *, is_path: bool) -> str:
        if (is_path, text) not in self._texts:
            self._texts[is_path, text] = redact_path(text) if is_path else redact_text(text)
        return self._texts[is_path, text]


def _repacked(table: Mapping[str, Any]) -> dict[str, str]:
    """Returns columns of numbers repacked as the recorder packs them, so that no other text can remain in them."""
    unpacker = Unpacker(table.values())
    kept = {}
    for name, column in table.items():
        with contextlib.suppress(ValueError):
            kept[redact_text(str(name))] = pack_bytes(unpacker.unpack(column))
    return kept


def _each_filename(value: Any, take: Callable[[str], None], seen: set[int]) -> None:
    if not isinstance(value, dict | list) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict) and isinstance(value.get("filename"), str):
        take(value["filename"])
    for item in value.values() if isinstance(value, dict) else value:
        _each_filename(item, take, seen)


def redact_run(folder: str) -> None:
    """Redacts every trace in the folder of a run.

    Raises:
        RefusedFile: One cannot be redacted; the others are.
    """
    refused: list[RefusedFile] = []
    for path in sorted(Path(folder).glob("rank*.pkl")):
        if path.is_file() and not path.is_symlink():
            try:
                redact_snapshot(path)
            except RefusedFile as error:
                refused.append(error)
    if refused:
        raise refused[0]


def redact_words(folder: str) -> None:
    """Redacts the status files of its processes (``rank<k>.json``)."""
    for path in sorted(Path(folder).glob("rank*.json")):
        content = read_json(str(path))
        if content is not None:
            write_json(str(path), redact_manifest(content))
