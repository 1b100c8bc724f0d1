"""The process that an argument names: a number, or the directory of a run."""

from __future__ import annotations

import json
from pathlib import Path

from memdiag.errors import MemdiagError
from memdiag.text import phrase


def pid_of(text: str) -> int:
    """Returns the number of the process.

    Raises:
        MemdiagError: The argument is neither, or not exactly one process of the run is alive.
    """
    if text.isdigit():
        return int(text)
    folder = Path(text)
    if not folder.is_dir():
        raise MemdiagError(phrase("watch.neither", text=text), phrase("watch.no-argument.hint"))
    living = []
    for path in sorted((folder / ".processes").glob("*.json")):
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if said.get("ended") is None and Path(f"/proc/{said.get('pid')}").exists():
            living.append((int(said["pid"]), said.get("rank")))
    if len(living) == 1:
        return living[0][0]
    if not living:
        raise MemdiagError(phrase("watch.none-living", folder=text), phrase("watch.no-argument.hint"))
    listed = ", ".join(f"{pid}" + (f" (rank {rank})" if rank is not None else "") for pid, rank in living)
    raise MemdiagError(phrase("watch.many", folder=text, count=len(living)), phrase("watch.many.hint", listed=listed))
