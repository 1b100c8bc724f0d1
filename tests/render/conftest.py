"""Hands the reports of sample_report.py and sample_oom.py to tests; tests are no package, so that they are loaded by their paths."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(file: str) -> ModuleType:
    name = f"memdiag_{file}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{file}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    return _load("sample_report")


@pytest.fixture(scope="session")
def oom_samples() -> ModuleType:
    return _load("sample_oom")
