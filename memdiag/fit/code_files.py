"""A hash of the files that a command runs: named files, Python files next to its script, and installed packages."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from memdiag.phantom.installed import installed_for

MOST_FILES = 5000  # Python files next to a script
_LONGEST_PATH = 4096
_LARGEST = 64 << 20  # bytes of a file whose content is hashed; of larger ones, size and time are
_NOT_CODE = frozenset({"__pycache__", "node_modules", "memdiag-fit", "site-packages"})


def named_files(command: Sequence[str]) -> tuple[Path, ...]:
    """Returns the files that the words of a command name."""
    return tuple(Path(word) for word in command if word and len(word) < _LONGEST_PATH and Path(word).is_file())


def code_hash(command: Sequence[str], named: Sequence[Path]) -> str:
    """Returns a hash of the code of a command; ``named`` are the files that it names."""
    total = hashlib.sha256()
    scripts = [path.resolve().parent for path in named if path.suffix == ".py"]
    for path in sorted({*named, *(file for folder in scripts for file in _python_files(folder))}):
        total.update(str(path).encode())
        total.update(_content(path))
    installed = installed_for(command, os.environ)
    total.update(installed.python.encode())
    for package in ("torch", "torch_npu"):
        total.update(installed.version_of(package).encode())
    if installed.version_of("torch"):
        packages = Path(installed.folder_of("torch")).parent
        total.update(" ".join(sorted(path.name for path in packages.glob("*.dist-info"))).encode())
    return total.hexdigest()


def _python_files(folder: Path) -> Iterator[Path]:
    count = 0
    for inside, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_code(Path(inside, name)))
        for name in sorted(files):
            if name.endswith(".py"):
                count += 1
                if count > MOST_FILES:
                    return
                yield Path(inside, name)


def _is_code(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in _NOT_CODE or folder.name.startswith("memdiag-")
    return not hidden and not (folder / "pyvenv.cfg").exists()


def _content(path: Path) -> bytes:
    try:
        facts = path.stat()
        if facts.st_size > _LARGEST:
            return f"{facts.st_size} {facts.st_mtime_ns}".encode()
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b"unreadable"
