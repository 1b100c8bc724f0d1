"""Runs at the start of every Python process below ``memdiag record``: waits for torch, and lets the user's own sitecustomize run.

Until torch is imported nothing of memdiag is loaded: a process that never imports it pays for one more finder on sys.meta_path.
"""

from __future__ import annotations

import os
import sys


class _Watch:
    """A finder that finds nothing itself: it lets others find a module, and calls back when that has been executed."""

    def __init__(self, then: dict) -> None:
        self._then = then

    def find_spec(self, name, path=None, target=None):  # noqa: ANN001, ANN202
        if name not in self._then:
            return None
        then = self._then.pop(name)
        if not self._then and self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is None:
                continue
            self._follow(spec, then)
            return spec
        return None

    @staticmethod
    def _follow(spec, then) -> None:  # noqa: ANN001
        execute = getattr(spec.loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module):  # noqa: ANN001, ANN202
            execute(module)
            then(module)

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader that cannot be followed: nothing is recorded


def _recorder():  # noqa: ANN202
    """Loads the recorder by its place: memdiag itself may not be installed for this Python."""
    name = "memdiag_recorder"
    if name not in sys.modules:
        from importlib.util import module_from_spec, spec_from_file_location

        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        spec = spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        module = module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    from importlib import import_module

    return import_module(name + ".session")


def _begin(module) -> None:  # noqa: ANN001
    try:
        _recorder().imported(module)
    except Exception as error:  # noqa: BLE001 - the program goes on whatever happens here
        sys.stderr.write(f"memdiag: nothing is recorded: {type(error).__name__}: {error}\n")


def _hand_over() -> None:
    """Takes this folder off sys.path and runs the next sitecustomize there is, as if this one had never been."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != here]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if mine is not None:
            sys.modules["sitecustomize"] = mine


if os.environ.get("MEMDIAG_RECORD"):
    sys.meta_path.insert(0, _Watch({"torch": _begin, "torch_npu": _begin}))
_hand_over()
