"""Cached code is loaded in a fast way if numba has the known private functions, and in numba's own way otherwise."""

from __future__ import annotations

from types import SimpleNamespace

import numba
import pytest

from memdiag.trace import compiled


class Cache:
    """The cache of a compiled function in the known versions of numba."""

    def load_overload(self, _signature, _context):
        return "slow"

    def _load_overload(self, _signature, _context):
        return "fast"

    def flush(self):
        self.flushed = True


class WithThree(Cache):
    def _load_overload(self, _signature, _context, _more):
        return "fast"


class Renamed(Cache):
    _load_overload = None


class Failing(Cache):
    def _load_overload(self, _signature, _context):
        raise TypeError


def loaded(cache, *, counts=False):
    compiled._hasten(SimpleNamespace(_cache=cache), counts=counts)
    return cache.load_overload("signature", None)


def test_the_known_functions_are_used():
    assert loaded(Cache()) == "fast"


@pytest.mark.parametrize("changed", [WithThree, Renamed, Failing])
def test_a_changed_function_is_not_used(changed):
    assert loaded(changed()) == "slow"


def test_numba_loads_code_that_counts_references_without_the_known_runtime(monkeypatch):
    monkeypatch.setattr(numba.core, "runtime", SimpleNamespace())
    cache = Cache()
    assert loaded(cache, counts=True) == "slow"
    assert not hasattr(cache, "flushed")


def test_a_function_without_a_cache_is_unchanged():
    compiled._hasten(SimpleNamespace(), counts=True)


def test_the_installed_numba_has_the_known_functions():
    found = numba.njit(cache=True)(compiled._takes_two)
    slow = found._cache.load_overload
    compiled._hasten(found, counts=True)
    assert found._cache.load_overload != slow
