"""Reads facts about a process from /proc, before memdiag attaches to it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_PYTHON = re.compile(r"(?:^|/)(?:lib)?python3\.(\d+)[a-z]*(?:\.so[.\d]*)?$")


@dataclass(frozen=True)
class Target:
    """A process to attach to.

    Attributes:
        pid: Its number.
        user: The number of the user that it runs as.
        minor: The minor version of its Python 3, or None if it is unknown.
        has_own_library: Whether Python's functions are in a shared library instead of the program file.
        has_torch: Whether libraries of PyTorch are loaded, or None if that cannot be read.
    """

    pid: int
    user: int
    minor: int | None
    has_own_library: bool
    has_torch: bool | None

    @property
    def program(self) -> str:
        """The program file, which can be run even if it was deleted."""
        return f"/proc/{self.pid}/exe"

    @property
    def is_alive(self) -> bool:
        """True if the process exists and is not a zombie."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        return text.rpartition(")")[2].split()[:1] != ["Z"]


def target_of(pid: int) -> Target:
    """Returns the facts about a process.

    Raises:
        MemdiagError: There is no such process, it is somebody else's, it sees other files, or it is not Python.
    """
    if not Path("/proc/self/maps").exists():
        raise MemdiagError(phrase("watch.no-proc"), phrase("watch.no-proc.hint"))
    folder = Path(f"/proc/{pid}")
    try:
        user = folder.stat().st_uid
    except OSError:
        raise MemdiagError(phrase("watch.no-process", pid=f"{pid}"), phrase("watch.no-process.hint")) from None
    if pid == os.getpid():
        raise MemdiagError(phrase("watch.itself"), phrase("watch.no-process.hint"))
    if os.geteuid() not in {0, user}:
        raise MemdiagError(
            phrase("watch.not-yours", pid=f"{pid}", owner=f"{user}", user=f"{os.geteuid()}"),
            phrase("watch.not-yours.hint", pid=f"{pid}"),
        )
    _check_files(pid)
    files = _mapped(pid)
    versions = [(int(match[1]), ".so" in path) for path in files if (match := _PYTHON.search(path))]
    names = [Path(path).name for path in files]
    if files and not versions and not any(name.startswith("python") for name in names):
        raise MemdiagError(
            phrase("watch.not-python", pid=f"{pid}", program=_readlink(folder / "exe")), phrase("watch.not-python.hint")
        )
    has_torch = any(name.startswith("libtorch") for name in names) if files else None
    library = next((minor for minor, is_library in versions if is_library), None)
    minor = library if library is not None else next((minor for minor, _ in versions), None)
    return Target(pid, user, minor, library is not None, has_torch)


def _mapped(pid: int) -> list[str]:
    """Returns the files that a process has mapped, each once; empty if they may not be read."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return list(dict.fromkeys(path for line in lines if (path := line.partition("/")[2])))


def _check_files(pid: int) -> None:
    """Refuses a process in another container: it could not open the files of memdiag."""
    try:
        theirs, own = Path(f"/proc/{pid}/root").stat(), Path("/").stat()
    except OSError:  # it may not be read; the attempt to attach will say why
        return
    if (theirs.st_dev, theirs.st_ino) != (own.st_dev, own.st_ino):
        raise MemdiagError(phrase("watch.container", pid=f"{pid}"), phrase("watch.container.hint", pid=f"{pid}"))


def _readlink(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return "?"
