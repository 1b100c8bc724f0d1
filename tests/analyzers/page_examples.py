"""The example findings in docs/findings/MD….md. Run this file to update their reports in the pages.

The test of an analyzer has ``PAGE_EXAMPLES``: for the code of a finding, a function that returns the findings of a
small trace or of a recorded snapshot.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

from memdiag.analyzers.report import build_report
from memdiag.render.analyze import full as terminal
from memdiag.results.finding import Finding
from memdiag.sources import load
from tests.forking import memdiag_command

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GOLDENS, PAGES = HERE.parent / "goldens", ROOT / "docs" / "findings"


def golden(name: str) -> Sequence[Finding]:
    """Returns the findings of a recorded snapshot of tests/goldens, including replays."""
    return build_report(load(GOLDENS / name / "snapshot.pickle")).findings


def read_example(*, replay: bool = True) -> Sequence[Finding]:
    """Returns the findings of examples/gpt-train.pickle."""
    return build_report(load(ROOT / "examples" / "gpt-train.pickle"), replay=replay).findings


@cache
def examples() -> Mapping[str, Callable[[], Sequence[Finding]]]:
    """Returns the examples of all tests of analyzers, by the code of the finding."""
    modules = [import_module(f"tests.analyzers.{path.stem}") for path in sorted(HERE.glob("test_*.py"))]
    return {code: call for module in modules for code, call in getattr(module, "PAGE_EXAMPLES", {}).items()}


def _only(findings, code) -> Finding:
    (found,) = [finding for finding in findings if finding.code == code]
    return found


# Arguments of ``memdiag conf``, by the code of the finding that they cause.
CONF = {
    "MD651": ["max_split_size:128"],
    "MD652": ["garbage_collection_threshold:80"],
    "MD653": ["max_split_size_mb:128MB"],
    "MD654": ["expandable_segments:True,max_split_size_mb:128", "--backend", "npu"],
    "MD655": ["segment_size_mb:20", "--backend", "npu"],
    "MD656": ["garbage_collection_threshold:0.8"],
    "MD657": ["expandable_segments:true"],
    "MD658": ["expandable_segments:True", "--with", "sleep-mode"],
}


def _of_settings(code: str) -> str:
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "MEMDIAG_LANG": "en"}
    command = [*memdiag_command(), "conf", *CONF[code]]
    return subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False).stdout


def _of_trace(code: str) -> str:
    finding = _only(examples()[code](), code)
    report = build_report(load(GOLDENS / "cuda-2.13.0-empty" / "snapshot.pickle"))
    return terminal.render(replace(report, findings=(finding,)))


def shown(code: str) -> str:
    """Returns the finding as printed by ``memdiag analyze`` or ``memdiag conf``, 80 columns wide."""
    lines = (_of_settings(code) if code in CONF else _of_trace(code)).split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith(f"  {code}  "))
    own = "\n".join(line.rstrip() for line in lines[first : lines.index("", first)])
    return textwrap.dedent(re.sub(r"/\S*/([a-z-]+\.pickle)", r"\1", own))


def block(page: str) -> re.Match[str] | None:
    """Returns the match of the first output block in a page, with its text as group 1."""
    return re.search(r"^```text\n(MD\d{3}  .*?)\n```$", page, re.MULTILINE | re.DOTALL)


def main(codes: list[str]) -> None:
    """Writes the reports into the pages that have an output block."""
    for code in codes or (*examples(), *CONF):
        path = PAGES / f"{code}.md"
        page = path.read_text(encoding="utf-8")
        found = block(page)
        if found is None:
            print(shown(code), end="\n\n")
        else:
            path.write_text(page[: found.start(1)] + shown(code) + page[found.end(1) :], encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
