"""The code of compiled functions: their callees, a digest of the code, and copies that call other functions."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_MARK = "__memdiag_part__"  # attribute with the compiler options of a function that compiled functions call (a part)


def mark_as_part(function: Any, options: dict[str, bool]) -> None:
    """Marks a function as a part, which compiled functions may call, with its compiler options."""
    setattr(function, _MARK, options)


def options_of_part(function: Any) -> dict[str, bool] | None:
    """Returns the compiler options of a part; None if the function is not a part."""
    found: dict[str, bool] | None = getattr(function, _MARK, None)
    return found


def relinked(
    function: FunctionType,
    finish: Callable[[FunctionType, FunctionType], Any],
    replace: Callable[[Any], Any],
    done: dict[FunctionType, Any],
) -> Any:
    """Returns a copy of a function that calls copies of its parts.

    Args:
        function: The original, which is not changed.
        finish: Returns the replacement of a function, given the original and its copy. The globals of the copy are
            completed later, since functions may call each other.
        replace: Returns the replacement of a global that is not a part.
        done: Replacements of the functions that have already been copied.
    """
    if function in done:
        return done[function]
    scope = dict(function.__globals__)
    copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    copy.__qualname__ = function.__qualname__
    done[function] = found = finish(function, copy)

    def linked(value: Any) -> Any:
        return replace(value) if options_of_part(value) is None else relinked(value, finish, replace, done)

    names = {name for code in _codes(function.__code__) for name in code.co_names}
    for name in names & scope.keys():
        value = scope[name]
        scope[name] = _copy_of_module(value, names, linked) if is_own_module(value) else linked(value)
    return found


def _copy_of_module(module: ModuleType, names: set[str], linked: Callable[[Any], Any]) -> ModuleType:
    """Returns a copy of a module in which the members that a function may name are linked."""
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module))
    vars(copy).update({name: linked(vars(module)[name]) for name in names & vars(module).keys()})
    return copy


def is_own_module(value: Any) -> bool:
    """Returns whether a value is a module of this package."""
    return isinstance(value, ModuleType) and value.__name__.startswith("memdiag.")


def stamp(function: Any) -> str:
    """Returns a digest of ``function``: its code, the constants it uses, and the same of the functions it calls.

    Fields of named tuples that it takes are included: compiled code finds them by position. Module names are included:
    compiled code imports the modules of all functions in it, so it cannot be loaded after one of them has moved.
    """
    words: list[str] = []
    for each in called_by(function):
        words += [repr(_layout(each.__globals__.get(str(kind)))) for kind in each.__annotations__.values()]
        for code in _codes(each.__code__):
            constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
            words.append(repr((each.__module__, code.co_code, constants, code.co_names, code.co_varnames)))
            for name, value in _used(each, code).items():
                if isinstance(value, int | float | tuple):
                    words.append(f"{name}={value!r}")
                elif isinstance(value, np.ndarray):  # a table, whose content numba compiles into the code
                    words.append(f"{name}={value.tobytes()!r}")
    return f"{zlib.crc32(' '.join(words).encode()):08x}"


def _layout(kind: Any) -> tuple[Any, ...]:
    """Returns the fields of a named tuple and of those in it; empty for other types."""
    if not hasattr(kind, "_fields"):
        return ()
    scope = vars(sys.modules[kind.__module__])
    names = [getattr(each, "__forward_arg__", "") for each in kind.__annotations__.values()]
    return kind.__name__, kind._fields, tuple(_layout(scope.get(name)) for name in names)


def called_by(function: Any) -> list[FunctionType]:
    """Returns ``function`` and all functions of this package that it calls directly or indirectly, each once."""
    found: dict[CodeType, FunctionType] = {}
    waiting = [function]
    while waiting:
        each = waiting.pop()
        each = getattr(each, "py_func", each)
        if not isinstance(each, FunctionType) or each.__code__ in found:
            continue
        found[each.__code__] = each
        waiting += [value for code in _codes(each.__code__) for value in _used(each, code).values()]
    return list(found.values())


def _used(function: FunctionType, code: CodeType) -> dict[str, Any]:
    """Returns the globals that a code object names, including members of this package's modules."""
    used = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for module in [value for value in used.values() if is_own_module(value)]:
        used |= {name: vars(module)[name] for name in code.co_names if name in vars(module)}
    return used


def num_instructions(function: FunctionType) -> int:
    """Returns the length of a function's bytecode without its callees; compilation time is proportional to it."""
    return sum(len(code.co_code) // 2 for code in _codes(function.__code__))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)
