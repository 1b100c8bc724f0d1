"""Writes memdiag/oom/anchors.py, which has the names, anchors and words of all dialects as data.

Run ``python -m tests.oom.write_anchors`` after adding a dialect, or after changing the anchors or words of one. New
dialects come last; to change the order, move lines of the table and run it again.
"""

from __future__ import annotations

import re
import textwrap
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from memdiag.oom import dialects
from memdiag.oom.anchors import ANCHORS

ROOT = Path(__file__).parents[2]
HEAD = 'ANCHORS = _by_dialect("""'
TAIL = '""")'


def main() -> None:
    """Writes the table."""
    found = {name: import_module(f"{dialects.__name__}.{name.replace('-', '_')}") for name in _names()}
    path = ROOT / "memdiag" / "oom" / "anchors.py"
    kept = path.read_text(encoding="utf-8").partition(HEAD)[0]
    own_words = [word for dialect in found.values() for word in dialects.words_of(dialect)]
    words = "".join(f"    {word!a},\n" for word in own_words).replace("'", '"')
    kept = re.sub(r"^WORDS = \([^)]*\)\n", lambda _match: f"WORDS = (\n{words})\n", kept, flags=re.MULTILINE)
    rows: list[str] = []
    for name, dialect in found.items():
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


def _names() -> list[str]:
    """Returns the names of all dialects: those of the table, then the new ones."""
    modules = {each.name: import_module(f"{dialects.__name__}.{each.name}") for each in iter_modules(dialects.__path__)}
    own = [name.replace("_", "-") for name, module in sorted(modules.items()) if hasattr(module, "FORMATS")]
    return [name for name in ANCHORS if name in own] + [name for name in own if name not in ANCHORS]


if __name__ == "__main__":
    main()
