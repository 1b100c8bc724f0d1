"""Finds the torch of the Python that a command will run, by querying that Python without importing packages."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memdiag.errors import MemdiagError
from memdiag.text import phrase

from .interpreter import find_python

_SECONDS = 60
_QUESTION = """
import json, sys
from importlib import metadata
from importlib.machinery import PathFinder
found = {}
for name in ("torch", "torch_npu"):
    spec = PathFinder.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        continue
    try:
        version = metadata.version(name)
    except Exception:
        version = ""
    found[name] = {"folder": list(spec.submodule_search_locations)[0], "version": version}
print(json.dumps({"python": sys.executable, "prefix": sys.prefix, "packages": found}))
"""


@dataclass(frozen=True)
class Installed:
    """One Python and its packages.

    Attributes:
        python: Its path.
        packages: For "torch" and "torch_npu", if installed: "folder" and "version".
        program: The first word of the command if memdiag does not know which Python it runs, and assumed the first one
            on the PATH; otherwise "".
    """

    python: str
    packages: Mapping[str, Mapping[str, str]]
    program: str = ""

    def version_of(self, package: str) -> str:
        """Returns the version of a package, or "" if it is not installed."""
        return self.packages[package]["version"] if package in self.packages else ""

    def hint(self, known: str) -> str:
        """Returns the hint for a missing package: ``known``, or one that names a Python that memdiag only assumed."""
        return phrase("phantom.assumed.hint", program=self.program, python=self.python) if self.program else known

    def folder_of(self, package: str) -> str:
        """Returns the folder of a package."""
        return self.packages[package]["folder"]


def installed_for(command: Sequence[str], environment: Mapping[str, str]) -> Installed:
    """Returns the packages installed for the Python that ``command`` runs.

    Raises:
        MemdiagError: No Python was found, or it does not respond.
    """
    found = find_python(command, environment)
    python = found.words
    try:
        done = subprocess.run(  # noqa: S603 - the Python that the user is about to run
            [*python, "-c", f"exec({_QUESTION!r})"],  # one line, because conda run takes no more
            env=found.environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise MemdiagError(
            phrase("phantom.no-run", python=shlex.join(python)),
            phrase("phantom.no-run.hint", python=shlex.join(python)),
        ) from None
    return Installed(answer["python"], answer["packages"], "" if found.is_known else command[0])
