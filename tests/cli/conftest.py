"""Provides the reports of tests/render/sample_report.py."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.render import sample_report


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    return sample_report
