"""Finds the names of parameters and buffers inside modules, so that only the holders of whole models are searched."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from typing import Any


class ModulePaths:
    """Where tensors are inside models; a model is a module that no other module contains.

    Args:
        module: The class ``torch.nn.Module``, or None.
        wanted: The ids of the tensors.

    Attributes:
        inside: By id of a tensor: the id of a model, or of a module directly inside one, and the name in this module.
        modules: These modules by id.
    """

    def __init__(self, module: Any, wanted: Collection[int]) -> None:
        self.inside: dict[int, list[tuple[int, str]]] = {}
        self.modules: dict[int, Any] = {}
        every = [each for each in gc.get_objects() if issubclass(type(each), module)] if module is not None else []
        contained = {id(part) for each in every for _, part in _items(each, "_modules")}
        for model in every:
            if id(model) not in contained:
                self._add(model, wanted)
                for _, part in _items(model, "_modules"):  # a variable often holds the module in a wrapper too
                    self._add(part, wanted)

    def _add(self, model: Any, wanted: Collection[int]) -> None:
        seen: set[int] = set()
        waiting = [(model, "")]
        while waiting:
            module, prefix = waiting.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            for attribute in ("_parameters", "_buffers"):
                for name, tensor in _items(module, attribute):
                    if id(tensor) in wanted:
                        self.inside.setdefault(id(tensor), []).append((id(model), prefix + name))
                        self.modules[id(model)] = model
            waiting += [(part, f"{prefix}{name}.") for name, part in _items(module, "_modules")]


def _items(module: Any, attribute: str) -> Iterator[tuple[str, Any]]:
    """Yields the entries of a dictionary of a module, without running code of the module."""
    try:
        found = object.__getattribute__(module, "__dict__").get(attribute)
    except AttributeError:
        return
    if issubclass(type(found), dict):
        yield from ((str(name), each) for name, each in list(found.items()) if each is not None)
