"""Loads a pickle the plain way, with a pickle.Unpickler that resolves no global: the least that a reader could do.

The garbage collector stays on, as it is by default. Prints the seconds of the load alone; the whole process also starts
Python and frees the objects at the end.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path


class Restricted(pickle.Unpickler):
    """Builtin containers and numbers only."""

    def find_class(self, module: str, name: str) -> object:
        """Refuses every global."""
        raise pickle.UnpicklingError(f"{module}.{name}")


if __name__ == "__main__":
    begin = time.perf_counter()
    with Path(sys.argv[1]).open("rb") as file:
        snapshot = Restricted(file).load()
    print(f"{time.perf_counter() - begin:.4f}")
