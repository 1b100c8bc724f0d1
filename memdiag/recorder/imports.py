"""Notices large imports: while they run, Python makes hundreds of thousands of calls that nobody wants on record.

``import torch._dynamo``, which the first optimizer step does, is 600,000 of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Parts of packages that are imported late and are as large as packages.
_LARGE = ("torch._dynamo", "torch._inductor", "torch.distributed", "torch.fx.experimental")


class Imports:
    """Calls back before and after each import of a package (and of a large part of one) that is not there yet.

    Args:
        begins: Called before.
        ends: Called after, also of one that fails. Imports within imports are not told of.
    """

    def __init__(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        self._begins = begins
        self._ends = ends
        self._depth = 0

    def install(self) -> None:
        """Begins to look."""
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Looks no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Lets the other finders find a module; follows the execution of a large one."""
        if self._depth or ("." in name and not name.startswith(_LARGE)):
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
            del loader.exec_module  # what was put over the method
            with self._one():
                execute(module)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader that takes no attributes
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
