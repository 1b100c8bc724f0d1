"""Fixtures with the reports of sample_report.py and sample_oom.py."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.render import sample_oom, sample_report


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    return sample_report


@pytest.fixture(scope="session")
def oom_samples() -> ModuleType:
    return sample_oom
