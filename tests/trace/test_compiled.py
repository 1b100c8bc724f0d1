"""Compiled code is cached under a stamp of the code from which it was made."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import pytest

from memdiag.trace import compiled, temporary
from memdiag.trace.compiled import is_cold
from memdiag.trace.linking import stamp


def function(text: str, **names: object) -> FunctionType:
    scope: dict[str, object] = {"__name__": "some.module", **names}
    exec(compile(text, "some file", "exec"), scope)  # noqa: S102 - the code of this file
    found = scope["f"]
    assert isinstance(found, FunctionType)
    return found


CALLER = "def f(x): return g(x) + LIMIT"


def test_a_stamp_is_the_same_for_the_same_code() -> None:
    callee = function("def f(x): return x + 1")
    assert stamp(function(CALLER, g=callee, LIMIT=3)) == stamp(
        function(CALLER, g=function("def f(x): return x + 1"), LIMIT=3)
    )


def test_a_stamp_depends_on_the_code_of_callees_and_on_constants() -> None:
    callee, other = function("def f(x): return x + 1"), function("def f(x): return x + 2")
    stamps = {
        stamp(function(CALLER, g=callee, LIMIT=3)),
        stamp(function(CALLER, g=other, LIMIT=3)),
        stamp(function(CALLER, g=callee, LIMIT=4)),
        stamp(function("def f(x): return g(x) - LIMIT", g=callee, LIMIT=3)),
    }
    assert len(stamps) == 4


def test_a_stamp_depends_on_the_fields_of_named_tuples() -> None:
    code = "def f(x: Pair) -> int: return x.first"
    stamps = {
        stamp(function(code, Pair=NamedTuple("Pair", [(name, int) for name in names])))
        for names in (("first", "second"), ("second", "first"))
    }
    assert len(stamps) == 2


def test_a_stamp_depends_on_the_module_of_callees() -> None:
    """The stamp changes if a callee moves, since numba imports the callee's module by name when it loads the code."""
    here, moved = function("def f(x): return x + 1"), function("def f(x): return x + 1")
    moved.__module__ = "memdiag.moved"
    assert stamp(function(CALLER, g=here, LIMIT=3)) != stamp(function(CALLER, g=moved, LIMIT=3))


def test_functions_that_call_each_other_have_a_stamp() -> None:
    first, second = function("def f(x): return g(x)"), function("def f(x): return g(x - 1) if x else 0")
    first.__globals__["g"], second.__globals__["g"] = second, first
    assert stamp(first) == stamp(first)


def test_a_function_that_has_run_is_not_cold() -> None:
    import numpy as np

    from memdiag.allocator.engine.loop import run
    from memdiag.allocator.replay import replay
    from memdiag.allocator.workload import Workload

    nothing = np.empty(0, np.int64)
    work = Workload(nothing, nothing, nothing, nothing, nothing, nothing, 0, 0, np.zeros(1, np.uint64))
    assert len(replay(work, "caching").status) == 0
    assert not is_cold(run)


def test_only_compiled_code_calls_parts() -> None:
    """Only compiled functions call parts, since a part called from Python would run as plain Python."""
    package = Path(compiled.__file__).parents[1]
    trees = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts): ast.parse(path.read_text())
        for path in package.rglob("*.py")
    }
    marks = {"njit", "njit_part", "lean", "lean_part"}

    def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, set[str]]]:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
                yield node, {name.id for name in decorators if isinstance(name, ast.Name)} & marks

    parts = {
        (module, node.name)
        for module, tree in trees.items()
        for node, kind in functions(tree)
        if kind & {"njit_part", "lean_part"}
    }
    assert len(parts) > 50
    for module, tree in trees.items():
        known = {name: module for of, name in parts if of == module}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                known |= {
                    name.asname or name.name: node.module or ""
                    for name in node.names
                    if (node.module, name.name) in parts
                }
        for node, kind in functions(tree):
            called = {
                call.func.id
                for call in ast.walk(node)
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            }
            assert kind or not called & set(known) or node.name == "_run", (module, node.name)  # loop_of compiles _run


def test_compiled_code_calls_only_parts() -> None:
    """Compiled functions call only parts, since numba cannot call a function that decides whether to run compiled."""
    if compiled.numba is None:
        pytest.skip("needs numba")
    package = Path(compiled.__file__).parents[1]
    for path in package.rglob("*.py"):
        if "trace.compiled import" in path.read_text():
            import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    assert len(compiled.KEPT) > 20
    for kept in compiled.KEPT:
        assert kept.dispatcher is not None, kept  # raises TypeError if it calls such a function


LOOP = """
from memdiag.trace import compiled

@compiled.njit
def total(n):
    found = 0
    for i in range(n):
        found += i
    return found

print(compiled.is_cold(total), total(10), compiled.folder_of(total), sum(total.dispatcher.stats.cache_hits.values()))
"""


def test_without_a_writable_folder_code_is_cached_in_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "__pycache__").touch()  # a file, so that no folder of this name can be created
    (tmp_path / "tmp").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {
        "HOME": "/dev/null",
        "XDG_CACHE_HOME": "/dev/null",
        "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", "import loop"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, second = run(), run()
    assert first[:2] == ["True", "45"]
    assert first[2].startswith(str(tmp_path / "tmp" / f"memdiag-{os.getuid()}"))
    assert second == ["False", "45", first[2], "1"]


@pytest.mark.parametrize("mode", [0o755, 0o770, None])
def test_code_is_not_loaded_from_a_folder_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"memdiag-{os.getuid()}"
    if mode is None:
        (tmp_path / "of_somebody").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "of_somebody")
    else:
        folder.mkdir()
        folder.chmod(mode)
    assert temporary.temporary_folder() is None


def test_cached_code_that_names_a_removed_class_is_compiled_again() -> None:
    """After an update, numba's cache index may name a removed class; numba alone would fail to read it."""

    class Cache:
        is_empty = False

        def _load_overload(self, _signature: object, _context: object) -> object:
            raise AttributeError("Can't get attribute 'Plan' on <module …>")

        def load_overload(self, _signature: object, _context: object) -> str:
            return "compiled" if self.is_empty else "the same error"

        def flush(self) -> None:
            self.is_empty = True

    class Compiled:
        _cache = Cache()

    compiled._hasten(Compiled(), counts=False)
    assert Compiled._cache.load_overload((), None) == "compiled"
