"""Writes memdiag/oom/anchors.py, which has the anchors and words of every dialect as data.

Run ``python -m tests.oom.write_anchors`` after changing the anchors or words of a dialect.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAD = 'ANCHORS = _by_dialect("""'
TAIL = '""")'


def main() -> None:
    """Writes the table."""
    from memdiag.oom.dialects import DIALECTS, dialects, words_of

    path = ROOT / "memdiag" / "oom" / "anchors.py"
    kept = path.read_text(encoding="utf-8").partition(HEAD)[0]
    words = "".join(f"    {word!a},\n" for dialect in dialects() for word in words_of(dialect)).replace("'", '"')
    kept = re.sub(r"^WORDS = \([^)]*\)\n", lambda _match: f"WORDS = (\n{words})\n", kept, flags=re.MULTILINE)
    rows: list[str] = []
    for name, dialect in zip(DIALECTS, dialects(), strict=True):
        assert not any(set(anchor) & set(" \\") for anchor in dialect.ANCHORS), (
            name
        )  # separator and escape character of the table
        anchors = " ".join(dialect.ANCHORS)
        indent = " " * 4
        rows += [
            name,
            *textwrap.wrap(anchors, 116, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False),
        ]
    path.write_text("\n".join((f"{kept}{HEAD}", *rows, f"{TAIL}\n")), encoding="utf-8")


if __name__ == "__main__":
    main()
