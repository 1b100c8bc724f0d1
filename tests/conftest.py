"""Fixtures of all tests: data folders, a browser, and deterministic Hypothesis settings without deadlines."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
GOLDENS = ROOT / "tests" / "goldens"
_PATIENCE = 90_000  # ms for Chromium to start; a busy machine is slow

# A shell that starts the tests in the background, or nohup, makes them and their child processes ignore signals.
for name in ("SIGHUP", "SIGINT", "SIGQUIT"):
    number = getattr(signal, name, None)
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)

# Tests compare reports in English, whatever the locale of the machine.
os.environ["MEMDIAG_LANG"] = "en"

# Tests start no background process, and wait for compiled code.
os.environ["MEMDIAG_COMPILE"] = "now"

# As many processes of tests run as there are processors, and idle threads of OpenMP would use them while they wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadline: the first call compiles, and the machine may be busy. Examples are deterministic, but Hypothesis takes
# some values from constants of loaded modules, so a file run alone may use other examples than the whole suite.
settings.register_profile("memdiag", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("memdiag")


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real snapshots and specifications: a folder next to the repository, not a part of it."""
    if not SHARED.is_dir():
        pytest.skip("needs the data folder ../shared beside the repository, which is not part of it")
    return SHARED


@pytest.fixture(scope="session")
def goldens() -> Path:
    """Small snapshots made for these tests, one folder each: <source>-<version>-<scenario>/."""
    return GOLDENS


# Scope "module": the browser's event loop runs as long as the fixture, and no test can start another loop meanwhile.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.skip("needs Chromium on the PATH (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=_PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pytorchs_viewer(chromium: Any) -> Iterator[Any]:
    """PyTorch's own viewer (tests/memory_viz) in Chromium."""
    from tests.memory_viz import MemoryViz

    viewer = MemoryViz(chromium)
    yield viewer
    viewer.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that asks for ``golden`` once for each golden folder."""
    if "golden" in metafunc.fixturenames:
        folders = sorted(path for path in GOLDENS.iterdir() if path.is_dir())
        metafunc.parametrize("golden", folders, ids=[folder.name for folder in folders])
