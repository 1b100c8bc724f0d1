"""Garbage collection is disabled while a file is written, and restored afterwards."""

import gc

import pytest

from memdiag.recorder.interrupts import uncollected


@pytest.fixture(autouse=True)
def _restore_collection():
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


def test_collection_is_enabled_again_after_a_failure():
    seen = []

    @uncollected()
    def write():
        seen.append(gc.isenabled())
        raise OSError("full")

    gc.enable()
    with pytest.raises(OSError, match="full"):
        write()
    assert seen == [False]
    assert gc.isenabled()


def test_disabled_collection_stays_disabled():
    gc.disable()
    with uncollected():
        assert not gc.isenabled()
    assert not gc.isenabled()
