"""The commits or package versions that ``memdiag bisect`` searches, and how a command runs with one of them.

Commits are checked out in a git worktree in a temporary folder, never in the user's. A version is installed into a
virtual environment of its own, which finds all other packages in the environment of the command's Python.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memdiag.errors import MemdiagError
from memdiag.text import phrase

_PIP = ("-m", "pip", "--disable-pip-version-check")
_PYTHON = re.compile(r"python[\d.]*")
_SITE = "import json, sys; print(json.dumps([p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))]))"


@dataclass(frozen=True)
class Prepared:
    """A commit or version that can run.

    Attributes:
        command: The command.
        folder: The directory to run it in.
    """

    command: tuple[str, ...]
    folder: Path


class Revisions(Protocol):
    """What is searched: commits or versions."""

    good: str
    bad: str
    is_separate: bool  # whether one can be prepared while another one runs

    def candidates(self, good: Collection[str], bad: str) -> list[str]:
        """Returns the revisions of which one may be the first bad one, the best to test first; ``bad`` is the last."""
        ...

    def prepare(self, revision: str, command: Sequence[str]) -> Prepared:
        """Makes a revision ready to run.

        Raises:
            MemdiagError: It cannot be checked out or installed.
        """
        ...

    def title(self, revision: str) -> str:
        """Returns the subject of a commit, or ""."""
        ...

    def close(self) -> None:
        """Removes what was made."""
        ...


class Commits:
    """Commits between a good and a bad one, as ``git bisect`` chooses them. They share one worktree.

    Args:
        good, bad: Commits, tags or branches.
        scratch: Folder for the worktree, which does not exist.

    Raises:
        MemdiagError: This is no repository, or a commit is unknown.
    """

    is_separate = False

    def __init__(self, good: str, bad: str, scratch: Path) -> None:
        top = Path(self._git("rev-parse", "--show-toplevel"))
        self._inside = Path.cwd().relative_to(top)
        self._scratch = scratch / "checkout"
        self.good, self.bad = (self._git("rev-parse", "--verify", f"{name}^{{commit}}") for name in (good, bad))
        self._is_made = False

    def candidates(self, good: Collection[str], bad: str) -> list[str]:
        """Returns the remaining commits, those in the middle of the history first."""
        bisected = self._git("rev-list", "--bisect-all", bad, *(f"^{each}" for each in sorted(good))).splitlines()
        found = [line.split()[0] for line in bisected]
        return [*(each for each in found if each != bad), bad]

    def prepare(self, revision: str, command: Sequence[str]) -> Prepared:
        """Checks a commit out in the worktree of the search."""
        if self._is_made:
            self._git("-C", str(self._scratch), "checkout", "--quiet", "--force", "--detach", revision)
            self._git("-C", str(self._scratch), "clean", "--quiet", "-ffdx")
        else:
            self._git("worktree", "add", "--quiet", "--force", "--detach", str(self._scratch), revision)
            self._is_made = True
        folder = self._scratch / self._inside
        if not folder.is_dir():
            raise MemdiagError(phrase("bisect.no-folder", folder=str(self._inside)))
        return Prepared(tuple(command), folder)

    def title(self, revision: str) -> str:
        """Returns the subject of a commit."""
        return self._git("log", "-1", "--format=%s", revision)

    def close(self) -> None:
        """Removes the worktree."""
        if self._is_made:
            self._git("worktree", "remove", "--force", str(self._scratch))

    def _git(self, *words: str) -> str:
        git = shutil.which("git")
        if git is None:
            raise MemdiagError(phrase("bisect.no-git"), phrase("bisect.no-git.hint"))
        done = subprocess.run([git, *words], capture_output=True, text=True, check=False)  # noqa: S603 - git itself
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise MemdiagError(
                phrase("bisect.git", command=" ".join(words[:3]), why=said[-1]), phrase("bisect.git.hint")
            )
        return done.stdout.strip()


class Versions:
    """Released versions of a package between a good and a bad one; the good one may be newer.

    Args:
        package: Name of the package.
        good, bad: Versions.
        command: The command, which begins with a Python.
        scratch: Folder for the environments.

    Raises:
        MemdiagError: A version is unknown, or the command does not begin with a Python.
    """

    is_separate = True

    def __init__(self, package: str, good: str, bad: str, command: Sequence[str], scratch: Path) -> None:
        python = shutil.which(command[0]) if _PYTHON.fullmatch(Path(command[0]).name) else None
        if python is None:
            raise MemdiagError(phrase("bisect.no-python", word=command[0]), phrase("bisect.no-python.hint"))
        self._python = os.path.abspath(python)  # noqa: PTH100 - a link to the Python of an environment stays
        self._package, self._scratch, self.good, self.bad = package, scratch, good, bad
        listed = self._run(self._python, *_PIP, "index", "versions", package)
        found = re.search(r"^Available versions: (.+)$", listed, re.MULTILINE)
        versions = [] if found is None else found[1].split(", ")[::-1]
        for version in (good, bad):
            if version not in versions:
                shown = ", ".join(versions[-12:])
                raise MemdiagError(
                    phrase("bisect.no-version", package=package, version=version),
                    phrase("bisect.no-version.hint", versions=shown),
                )
        low, high = versions.index(good), versions.index(bad)
        self._all = versions[low : high + 1] if low <= high else versions[high : low + 1][::-1]

    def candidates(self, good: Collection[str], bad: str) -> list[str]:
        """Returns the remaining versions, those in the middle first."""
        low = max(self._all.index(each) for each in good)
        left = self._all[low + 1 : self._all.index(bad)]
        return [*sorted(left, key=lambda each: abs(2 * left.index(each) - len(left) + 1)), bad]

    def prepare(self, revision: str, command: Sequence[str]) -> Prepared:
        """Installs a version into an environment of its own."""
        folder = self._scratch / f"{self._package}-{revision}"
        python = folder / "bin" / "python"
        self._run(self._python, "-m", "venv", "--without-pip", str(folder))
        below = json.loads(self._run(self._python, "-c", _SITE))
        (packages,) = folder.glob("lib/python3*/site-packages")
        lines = [f"import site; site.addsitedir({path!r})" for path in below]
        (packages / "memdiag-below.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        # pip of the new environment: pip --python would start a second Python
        self._run(str(python), *_PIP, "install", "--quiet", "--no-compile", f"{self._package}=={revision}")
        return Prepared((str(python), *command[1:]), Path.cwd())

    def title(self, revision: str) -> str:
        """Returns "": a version has no subject."""
        del revision
        return ""

    def close(self) -> None:
        """Leaves the folder to its owner, who removes it."""

    def _run(self, *words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - the user's Python
        if done.returncode:
            said = [line for line in done.stderr.strip().splitlines() if line.strip()] or [str(done.returncode)]
            raise MemdiagError(phrase("bisect.pip", package=self._package, why=said[-1]), phrase("bisect.pip.hint"))
        return done.stdout


def own_memdiag() -> list[str]:
    """Returns the words that start this memdiag, also in a folder that has another one."""
    return [sys.executable, "-P", "-m", "memdiag"]
