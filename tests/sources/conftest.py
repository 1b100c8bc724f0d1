"""Folders of shared files."""

from __future__ import annotations

import pytest


@pytest.fixture
def other(shared):
    return shared / "data" / "other"


@pytest.fixture
def profile(shared):
    return shared / "data" / "npu-samples" / "prof"
