"""Compiled code is kept under a name that says what it is made of."""

from __future__ import annotations

from types import FunctionType

from memdiag.trace.compiled import is_cold, stamp


def function(text: str, **names: object) -> FunctionType:
    scope: dict[str, object] = {"__name__": "some.module", **names}
    exec(compile(text, "some file", "exec"), scope)  # noqa: S102 - two lines of our own
    found = scope["f"]
    assert isinstance(found, FunctionType)
    return found


CALLER = "def f(x): return g(x) + LIMIT"


def test_a_stamp_is_the_same_for_the_same_code() -> None:
    callee = function("def f(x): return x + 1")
    assert stamp(function(CALLER, g=callee, LIMIT=3)) == stamp(function(CALLER, g=function("def f(x): return x + 1"), LIMIT=3))


def test_a_stamp_tells_the_code_of_callees_and_constants() -> None:
    callee, other = function("def f(x): return x + 1"), function("def f(x): return x + 2")
    stamps = {
        stamp(function(CALLER, g=callee, LIMIT=3)),
        stamp(function(CALLER, g=other, LIMIT=3)),
        stamp(function(CALLER, g=callee, LIMIT=4)),
        stamp(function("def f(x): return g(x) - LIMIT", g=callee, LIMIT=3)),
    }
    assert len(stamps) == 4


def test_functions_that_call_each_other_have_one() -> None:
    first, second = function("def f(x): return g(x)"), function("def f(x): return g(x - 1) if x else 0")
    first.__globals__["g"], second.__globals__["g"] = second, first
    assert stamp(first) == stamp(first)


def test_what_has_run_is_not_cold() -> None:
    import numpy as np

    from memdiag.allocator.machine.run import run
    from memdiag.allocator.replay import replay
    from memdiag.allocator.workload import Workload

    nothing = np.empty(0, np.int64)
    work = Workload(nothing, nothing, nothing, nothing, nothing, nothing, 0, 0, np.zeros(1, np.uint64))
    assert len(replay(work, "caching").status) == 0
    assert not is_cold(run)
