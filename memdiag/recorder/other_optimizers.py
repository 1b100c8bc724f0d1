"""Optimizers that are not PyTorch's, so that PyTorch's global hooks do not report their steps: fastai's and Keras's."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any


class _Fastai:
    """A fastai optimizer with the attributes of PyTorch's."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.proxy(optimizer)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameters, by group."""
        return [{"params": list(group)} for group in self._optimizer.param_lists]

    @property
    def state(self) -> dict[Any, dict[str, Any]]:
        """The state of each parameter."""
        return dict(self._optimizer.state)


class _Keras:
    """A Keras optimizer with the attributes of PyTorch's."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.proxy(optimizer)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameters, in one group."""
        return [{"params": [variable.value for variable in self._optimizer._trainable_variables]}]

    @property
    def state(self) -> dict[Any, dict[str, Any]]:
        """The state of each parameter; Keras names it after the path of the parameter."""
        found: dict[Any, dict[str, Any]] = {}
        for variable in self._optimizer._trainable_variables:
            start = variable.path.replace("/", "_") + "_"
            own = {
                each.name[len(start) :]: each.value for each in self._optimizer.variables if each.name.startswith(start)
            }
            if own:
                found[variable.value] = own
        return found


# Module, class, method that is a step, and how memdiag reads such an optimizer.
_KNOWN: tuple[tuple[str, str, str, Callable[[Any], Any]], ...] = (
    ("fastai.optimizer", "Optimizer", "step", _Fastai),
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply", _Keras),
)


def has_other_optimizers() -> bool:
    """Returns whether the program imported such optimizers."""
    return any(module in sys.modules for module, *_ in _KNOWN)


class OtherOptimizers:
    """Calls back around the steps of such optimizers.

    Args:
        before: Called before a step, with an object that has ``param_groups`` and ``state``.
        after: Called after it with the same object, which exists as long as the optimizer.
    """

    def __init__(self, before: Callable[[Any], None], after: Callable[[Any], None]) -> None:
        self._before, self._after = before, after
        self._seen: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._waiting = list(_KNOWN)
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._depth = 0

    def look(self) -> None:
        """Wraps the classes whose modules have been imported since the last look."""
        for one in tuple(self._waiting):
            module, name, method, view = one
            if module in sys.modules:
                self._waiting.remove(one)
                owner = getattr(sys.modules[module], name, None)
                if callable(getattr(owner, method, None)):
                    self._wrap(owner, method, view)

    def remove(self) -> None:
        """Restores the classes."""
        for owner, method, mine, original in self._replaced:
            if getattr(owner, method, None) is mine:
                setattr(owner, method, original)
        self._replaced.clear()
        self._waiting.clear()

    def _wrap(self, owner: Any, method: str, view: Callable[[Any], Any]) -> None:
        original = getattr(owner, method)

        @functools.wraps(original)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth:  # an optimizer that calls another one
                return original(optimizer, *args, **kwargs)
            seen = self._seen.get(optimizer)
            if seen is None:
                seen = self._seen[optimizer] = view(optimizer)
            self._depth += 1
            try:
                self._before(seen)
                return original(optimizer, *args, **kwargs)
            finally:
                self._depth -= 1
                self._after(seen)

        setattr(owner, method, step)
        self._replaced.append((owner, method, step, original))
