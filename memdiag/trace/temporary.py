"""A folder for the user's temporary files."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def temporary_folder() -> Path | None:
    """Returns a temporary folder that only this user can write to, or None. Creates it if necessary."""
    if not hasattr(os, "getuid"):  # Windows: the folder of temporary files belongs to the user
        return Path(tempfile.gettempdir()) / "memdiag"
    try:
        folder = Path(tempfile.gettempdir()) / f"memdiag-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_own else None
