"""Writes references between objects as Python expressions: ``.fc``, ``['loss'][0]``, ``Out[3]``."""

from __future__ import annotations

from typing import Any


def is_a(value: Any, kind: Any) -> bool:
    """Returns whether a value has a type, as isinstance does, but without running code of the object."""
    return issubclass(type(value), kind)


def step_to(holder: Any, each: Any) -> str:
    """Returns how a holder refers to an object, as it would be written in Python."""
    if is_a(holder, dict):
        return next((f"[{_short(key)}]" for key, value in list(holder.items()) if value is each), ".keys()")
    if is_a(holder, (list, tuple)):
        return next((f"[{number}]" for number, value in enumerate(holder) if value is each), "[…]")
    attributes: Any = getattr(holder, "__dict__", None)
    if is_a(attributes, dict):
        name = next((name for name, value in list(attributes.items()) if value is each), "")
        if name:
            return f".{name}"
    return ""


def _short(key: Any) -> str:
    text = repr(key) if is_a(key, (str, int, float, tuple, bool)) else type(key).__name__
    return text if len(text) <= 60 else text[:59] + "…"


def variable(module: str, step: str, suffix: str) -> str:
    """Returns a global variable; those of IPython are named after their cell."""
    name = step[2:-2] if step[:2] in {"['", '["'} else step
    if module == "__main__" and (name in {"_", "__", "___"} or name.lstrip("_").isdigit()):
        return f"{name}{suffix} (output of a cell)"
    if module == "__main__" and name in {"Out", "_oh"}:
        return f"Out{suffix} (output of a cell)"
    return f"{name}{suffix}" if module == "__main__" else f"{module}.{name}{suffix}"
