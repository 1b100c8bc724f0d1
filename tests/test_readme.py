"""What README.md shows is what memdiag does: its diagnosis is the real one, its Python runs, its links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys

import pytest

OMITTED = "…"


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "command"), [("README.md", "oom"), ("README.md", "analyze"), ("docs/oom.md", "oom")])
def test_the_diagnosis_is_what_memdiag_prints(root, page, command):
    text = (root / page).read_text(encoding="utf-8")
    block = re.search(rf"```console\n\$ memdiag ({command} .*)\n((?:.*\n)*?)```", text)
    shown = [line.rstrip() for line in block[2].splitlines() if line.strip() not in {"", OMITTED}]
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    arguments = [sys.executable, "-m", "memdiag", *block[1].split()]
    done = subprocess.run(arguments, cwd=root, env=env, capture_output=True, encoding="utf-8", timeout=300, check=True)
    printed = iter([line.rstrip() for line in done.stdout.splitlines()])
    missing = [line for line in shown if line not in printed]  # "in" moves on: so the order counts too
    assert missing == [], f"{page} shows lines that memdiag does not print (in this order): paste its output anew (make readme)"
    assert len(shown) >= 20


def test_the_python_example_runs(root, readme, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(root)
    program = next(code for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "memdiag.load" in code)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec"), {})  # noqa: S102 - our own README
    assert "reserved" in printed.getvalue()


def test_links_in_documents_lead_somewhere(root):
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").glob("*.md")]
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
