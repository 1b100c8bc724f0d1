"""Writes memdiag/oom/anchors.py anew: the anchors of every dialect as data. ``python tests/oom/write_anchors.py`` after a change."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = "ANCHORS: dict[str, tuple[str, ...]] = {"


def main() -> None:
    """Writes the table."""
    sys.path.insert(0, str(ROOT))
    from memdiag.oom.dialects import DIALECTS, dialects

    path = ROOT / "memdiag" / "oom" / "anchors.py"
    kept = path.read_text(encoding="utf-8").partition(HEAD)[0]
    rows = []
    for name, dialect in zip(DIALECTS, dialects(), strict=True):
        anchors = "".join(f'        "{anchor}",\n' for anchor in dialect.ANCHORS)
        only = f'("{dialect.ANCHORS[0]}",)' if len(dialect.ANCHORS) == 1 else ""  # as the formatter has it
        rows.append(f'    "{name}": {only or f"({chr(10)}{anchors}    )"},\n')
    path.write_text(f"{kept}{HEAD}\n{''.join(rows)}}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
