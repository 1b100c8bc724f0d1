"""The console examples of README and docs show the current output."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("outputs", ROOT / "docs" / "outputs.py")
outputs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(outputs)


def name(path):
    return path.relative_to(ROOT).as_posix()


def test_the_readme_has_examples():
    assert {"README.md", "README.zh.md", "docs/oom.md"} <= {name(path) for path in outputs.PAGES}


@pytest.mark.parametrize("path", outputs.PAGES, ids=name)
def test_examples_show_the_current_output(path):
    assert outputs.page(path) == path.read_text(encoding="utf-8"), "the output has changed: run `make readme`"
