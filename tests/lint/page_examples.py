"""The reports shown in docs/findings/MD8….md. Run this file to update the pages.

Each report is what ``memdiag lint`` prints for the code under *Before* on the same page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.forking import memdiag_command

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "findings"
BLOCK = re.compile(r"^```text\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^(Before|After):\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def codes(page: str) -> dict[str, str]:
    """Returns the two code blocks of a page, ``Before`` and ``After``."""
    return dict(_CODE.findall(page))


def shown(code: str) -> str:
    """Returns the paragraphs of the report about this finding code: the places, then the remedy."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(
            codes((PAGES / f"{code}.md").read_text(encoding="utf-8"))["Before"], "utf-8"
        )
        env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "MEMDIAG_LANG": "en"}
        command = [*memdiag_command(), "lint", "train.py"]
        printed = subprocess.run(
            command,
            cwd=folder,
            env={"PYTHONPATH": str(ROOT), **env},
            capture_output=True,
            encoding="utf-8",
            check=False,
        ).stdout
    own = [each for each in printed.rstrip().split("\n\n") if re.search(rf"^\S*\s+{code}\b", each)]
    return "\n\n".join("\n".join(line.rstrip() for line in each.splitlines()) for each in own)


def main(wanted: list[str]) -> None:
    """Writes the reports into the pages."""
    for path in sorted(PAGES.glob("MD8*.md")):
        if not wanted or path.stem in wanted:
            page = path.read_text(encoding="utf-8")
            path.write_text(BLOCK.sub(lambda _, code=path.stem: f"```text\n{shown(code)}\n```", page, count=1), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
