"""Lets a CUDA build of torch be imported without the wheels of NVIDIA's toolkit.

Usage: python -m memdiag.phantom.cuda.placeholders PYTHON.

The wheels take 3.5 GB, but an import only needs libraries with the right names and symbols. This module copies the
libraries that the simulated runtime compiles into torch's own folder. torch searches that folder last, so wheels that
are installed later take precedence. Programs that memdiag did not start on a simulated device find no CUDA device, even
if the machine has a GPU.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.phantom.cuda.standin import PLACEHOLDERS, Torch, stand_in
from memdiag.phantom.installed import installed_for


def put_in_place(python: str) -> list[str]:
    """Copies the compiled libraries that the real toolkit lacks into the torch of a Python; returns their names.

    Raises:
        MemdiagError: torch has no CUDA, or an unknown version; or there is no compiler.
    """
    installed = installed_for([python], os.environ)
    libraries = stand_in(installed)
    torch = Torch(Path(installed.folder_of("torch")), installed.version_of("torch"))
    here = torch.folder / "lib"
    missing = [path for path in sorted(libraries.iterdir()) if not path.is_symlink() and not torch.toolkit(path.name)]
    for path in missing:
        shutil.copyfile(path, here / path.name)
    names = [path.name for path in missing]
    (here / PLACEHOLDERS).write_text("\n".join(names) + "\n", encoding="utf-8")
    return names


if __name__ == "__main__":
    try:
        put_in_place(sys.argv[1])
    except MemdiagError as error:
        sys.exit(f"{error}")
