"""Finds the file to read in a folder that a profiler has written, by the names that profilers give their files."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

# The most informative format first.
_NAMES = (
    *("*.pickle", "*.pkl", "memscope_dump*", "operator_memory*.csv", "ascend_pytorch_profiler*.db", "msprof_*.db"),
    *("*.pt.trace.json", "*.pt.trace.json.gz", "*.raw.json.gz", "memory_record*.csv", "torch.memory_usage"),
)
_DEEPEST, _MOST_FILES = 4, 5000  # a profiler nests less; a home directory can take minutes


def trace_in(folder: Path) -> Path | None:
    """Returns a file in a folder or below it whose name is that of a trace, or None."""
    found: dict[str, Path] = {}
    left = _MOST_FILES
    for place, folders, files in os.walk(folder):
        if len(Path(place).relative_to(folder).parts) >= _DEEPEST:
            folders.clear()
        folders.sort()
        left -= len(files)
        if left < 0:
            break
        for file in sorted(files):
            name = next((name for name in _NAMES if fnmatch(file, name)), None)
            if name is not None:
                found.setdefault(name, Path(place, file))
    return next((found[name] for name in _NAMES if name in found), None)
