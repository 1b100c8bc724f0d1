"""While a file is written Python does not look for garbage, and afterwards as before."""

import gc

import pytest

from memdiag.recorder.interrupts import uncollected


@pytest.fixture(autouse=True)
def _as_it_was():
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


def test_it_is_off_meanwhile_and_on_again_also_after_a_failure():
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


def test_who_has_switched_it_off_finds_it_off():
    gc.disable()
    with uncollected():
        assert not gc.isenabled()
    assert not gc.isenabled()
