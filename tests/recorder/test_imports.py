"""``memdiag.recorder.imports`` reports large imports beside other finders that wrap modules."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec

from memdiag.recorder.imports import Imports


class Wraps:
    """A finder that wraps the execution of one module, as that of simulated devices does."""

    def __init__(self, name):
        self.name, self.executed = name, []

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - Python's signature
        if name != self.name:
            return None
        self.name = ""
        spec = find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.executed.append(module.__name__)

        spec.loader.exec_module = exec_module
        return spec


def test_a_package_that_another_finder_wraps_is_imported_once(tmp_path, monkeypatch):
    (tmp_path / "wrapped_package").mkdir()
    (tmp_path / "wrapped_package" / "__init__.py").write_text("VALUE = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    calls = []
    imports, wraps = Imports(lambda: calls.append("begin"), lambda: calls.append("end")), Wraps("wrapped_package")
    sys.meta_path.insert(0, wraps)
    imports.install()
    try:
        module = importlib.import_module("wrapped_package")
    finally:
        imports.remove()
        sys.meta_path.remove(wraps)
        sys.modules.pop("wrapped_package", None)
    assert module.VALUE == 1
    assert wraps.executed == ["wrapped_package"]
    assert calls == ["begin", "end"]
