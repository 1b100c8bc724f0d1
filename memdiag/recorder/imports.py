"""Detects imports of packages: they make hundreds of thousands of Python calls that should not be recorded.

``import torch._dynamo``, in the first optimizer step, makes 600,000 of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Imports:
    """Calls back before and after the first import of each package, also of one inside another package.

    Args:
        begins: Called before.
        ends: Called after it, even if it fails. Nested imports are not reported.
    """

    def __init__(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        self._begins = begins
        self._ends = ends
        self._depth = 0

    def install(self) -> None:
        """Starts detection."""
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stops detection."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Lets the other finders find a module, and follows the execution of a package."""
        if self._depth:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: Any) -> None:
        loader = spec.loader
        if spec.submodule_search_locations is None or not hasattr(loader, "exec_module"):
            return  # a single file: not large
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            vars(loader).pop("exec_module", None)  # the override; another finder may have wrapped and removed it
            with self._one():
                execute(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader that does not accept attributes
            return

    @contextmanager
    def _one(self) -> Iterator[None]:
        self._depth += 1
        try:
            if self._depth == 1:
                self._begins()
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._ends()
