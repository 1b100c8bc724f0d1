"""The environment in which every program with torch can be watched without a debugger."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from memdiag import recorder
from memdiag.recorder.watching.arming import VARIABLE


def exports() -> str:
    """Returns lines for a shell: ``eval "$(memdiag watch --arm)"``."""
    site = str(Path(recorder.__file__).parent / "site")
    before = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry and entry != site]
    return f"export {VARIABLE}=1\nexport PYTHONPATH={shlex.quote(os.pathsep.join([site, *before]))}"
