"""Provides the reports of tests/render/sample_report.py, and a command that records with a fake torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.render import sample_report

ROOT = Path(__file__).parents[2]
FAKE_TORCH = ROOT / "tests" / "recorder" / "fake_torch"
MEMDIAG = [sys.executable, "-c", "import sys; from memdiag.cli.main import main; sys.exit(main())"]


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    return sample_report


@pytest.fixture
def record(tmp_path):
    """Runs memdiag record in an empty folder, with the fake torch."""

    def run(*command, options=(), fake=True, **more):
        base = {name: value for name, value in os.environ.items() if not name.startswith(("MEMDIAG", "PYTHON", "RANK"))}
        base["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([str(FAKE_TORCH)] if fake else [])])
        given = [*MEMDIAG, "record", *options, "--", *command]
        return subprocess.run(
            given, cwd=tmp_path, env={**base, **more}, capture_output=True, text=True, timeout=200, check=False
        )

    return run
