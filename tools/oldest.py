"""Prints the oldest allowed version of each dependency, as requirements: oldest.py [pyproject.toml].

For `make oldest`, which tests memdiag with them. The newest allowed versions are those that `make test` installs.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_LOWEST = re.compile(r"([A-Za-z0-9_.-]+)>=([^,;]+)")


def oldest(requirements: list[str]) -> list[str]:
    """Returns ``name==lowest`` for each requirement, which must have a lower limit."""
    found = [_LOWEST.match(requirement) for requirement in requirements]
    missing = [text for text, match in zip(requirements, found, strict=True) if match is None]
    if missing:
        sys.exit(f"error: no lower limit: {', '.join(missing)}")
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "pyproject.toml"
    print(*oldest(tomllib.loads(given.read_text(encoding="utf-8"))["project"]["dependencies"]), sep="\n")
