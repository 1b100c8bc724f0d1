"""Compiles simulated libraries with the system's compiler, once per version of the replaced libraries.

The result is kept in the user's cache.

The key of a build covers sources, compiler, processor and the installed libraries. Builds are created in a temporary
folder and renamed, so an existing folder is complete. Concurrent processes wait for the first one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.text import phrase

CACHE = "MEMDIAG_CACHE"
_SECONDS = 600
_COMPILERS = {"c": ("CC", ("cc", "gcc", "clang")), "c++": ("CXX", ("c++", "g++", "clang++"))}


@dataclass(frozen=True)
class Compiler:
    """A compiler of this machine: its command, and its version output."""

    command: tuple[str, ...]
    version: str

    def run(self, arguments: Sequence[str | Path]) -> None:
        """Runs the compiler.

        Raises:
            MemdiagError: It failed; the message contains its first error.
        """
        command = [*self.command, *map(str, arguments)]
        try:
            done = subprocess.run(  # noqa: S603 - the user's own compiler
                command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MemdiagError(
                phrase("phantom.compiler", compiler=self.command[0], error=str(error)), phrase("phantom.compiler.hint")
            ) from None
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:300])
            raise MemdiagError(
                phrase("phantom.compile", compiler=self.command[0], error=first),
                phrase("phantom.compile.hint"),
            )


def find_compiler(language: str) -> Compiler:
    """Returns a compiler for "c" or "c++": from the variable CC or CXX, else the first on the PATH.

    Raises:
        MemdiagError: No compiler was found.
    """
    variable, names = _COMPILERS[language]
    chosen = shlex.split(os.environ.get(variable, "")) or next(
        ([path] for name in names if (path := shutil.which(name))), []
    )
    if not chosen or shutil.which(chosen[0]) is None:
        missing = phrase("phantom.no-program", text=f"{variable}={chosen[0]}") if chosen else phrase("phantom.no-path")
        raise MemdiagError(
            phrase("phantom.no-compiler", language=language.upper(), why=missing), phrase("phantom.no-compiler.hint")
        )
    # As above.
    said = subprocess.run([*chosen, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    return Compiler(tuple(chosen), said.partition("\n")[0])


def cached(kind: str, parts: Iterable[str | Path], make: Callable[[Path], None]) -> Path:
    """Returns the folder of a build, creating it if necessary.

    Args:
        kind: Prefix of its name.
        parts: Dependencies: texts, and files whose content counts.
        make: Fills an empty folder.

    Raises:
        MemdiagError: It cannot be created.
    """
    digest = hashlib.sha256(platform.machine().encode())
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    cache = _cache()
    folder = cache / f"{kind}-{digest.hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    with _alone(cache / f"{folder.name}.lock"):
        if not folder.is_dir():
            beside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=cache))
            try:
                beside.chmod(0o755)
                make(beside)
                with contextlib.suppress(OSError):  # another process may have been faster, see _alone
                    beside.rename(folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
    if not folder.is_dir():
        raise MemdiagError(phrase("phantom.not-made", folder=str(folder)), phrase("phantom.cache", variable=CACHE))
    return folder


def _cache() -> Path:
    given = os.environ.get(CACHE)
    base = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memdiag"
    folder = base.absolute() / "phantom"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MemdiagError(
            phrase("phantom.not-kept", folder=str(folder), error=str(error.strerror)),
            phrase("phantom.cache", variable=CACHE),
        ) from None
    if not os.access(folder, os.W_OK):
        raise MemdiagError(
            phrase("phantom.not-kept", folder=str(folder), error=phrase("phantom.not-writable")),
            phrase("phantom.cache", variable=CACHE),
        )
    return folder


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Runs one process at a time; the lock is released when its process ends."""
    with path.open("w", encoding="ascii") as file:
        with contextlib.suppress(OSError):  # some network drives have no locks: then both build, and one result is kept
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
