"""The one door to numba: loops over millions of events run compiled, or, where numba is missing, as the plain Python they are.

Compiled code is kept on disk (beside the module, else in numba's user cache), so that only the very first run has to wait for
the compiler. numba itself compiles anew when the file of a function changes, and not when that of a function it calls does; so the name
that a function is kept under says what it and all below it are made of.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

numba: Any
try:
    import numba
except ImportError:  # slow, but right
    numba = None


def njit(function: F) -> F:
    """Compiles ``function`` with numba, cached on disk; returns it unchanged where numba is missing."""
    return _compile(function, is_kept=True)


def njit_part(function: F) -> F:
    """Compiles ``function`` as a part of others that ``njit`` keeps on disk: by itself it is not worth a file."""
    return _compile(function, is_kept=False)


def lean(function: F) -> F:
    """The same as ``njit`` for a function that makes no array: it need not count who has those that it was given."""
    return _compile(function, is_kept=True, _nrt=False)


def lean_part(function: F) -> F:
    """The same as ``njit_part`` for a function that makes no array. For a short one the counting takes longer than the work."""
    return _compile(function, is_kept=False, _nrt=False)


def _compile(function: F, *, is_kept: bool, **options: bool) -> F:
    if numba is None or numba.config.DISABLE_JIT:
        return function
    options |= {"nogil": True, "boundscheck": os.environ.get("NUMBA_BOUNDSCHECK") == "1"}
    if is_kept:
        function.__qualname__ = f"{function.__qualname__}_{stamp(function)}"
        try:
            kept: F = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # there is no folder that it could be kept in
            pass
        else:
            _hasten(kept, counts=options.get("_nrt", True))
            return kept
    compiled: F = numba.njit(**options)(function)
    return compiled


def _hasten(compiled: Any, *, counts: bool) -> None:
    """Lets code that is on disk be taken from there at once.

    Before it looks, numba loads all that it knows about compiling, which takes longer than starting up does. What is compiled already needs
    the addresses of numba's own functions only, and if it makes arrays (``counts`` who has them) what does that. A numba that is built
    otherwise goes its own way.
    """
    cache: Any = getattr(compiled, "_cache", None)
    if not hasattr(cache, "_load_overload"):
        return
    slow = cache.load_overload

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            if counts:
                numba.core.runtime.rtsys.initialize(context)
            found = cache._load_overload(signature, context)  # noqa: SLF001
        except (AttributeError, ImportError, TypeError, OSError):
            found = None
        return slow(signature, context) if found is None else found

    cache.load_overload = load_overload


def is_cold(compiled: Any = None) -> bool:
    """Returns whether there is a wait for the compiler before ``compiled`` can run; without it, before the next trace (about 20 s)."""
    if numba is None or numba.config.DISABLE_JIT:
        return False
    if compiled is not None:
        kept = compiled.stats.cache_path
        return not compiled.signatures and (kept is None or not any(Path(kept).glob(f"*.{compiled.py_func.__qualname__}-*.nbi")))
    here = Path(__file__).parent / "__pycache__"
    if numba.config.CACHE_DIR:
        return not any(Path(numba.config.CACHE_DIR).rglob("heap.walk*.nbi"))
    return os.access(here.parent, os.W_OK) and not any(here.glob("heap.walk*.nbi"))


def stamp(function: Any) -> str:
    """Returns a short name for what ``function`` is made of: its code, the constants it uses, and the same of what it calls."""
    words: list[str] = []
    _tell(function, words, set())
    return f"{zlib.crc32(' '.join(words).encode()):08x}"


def _tell(function: Any, words: list[str], seen: set[CodeType]) -> None:
    if function.__code__ in seen:
        return
    seen.add(function.__code__)
    for code in _codes(function.__code__):
        constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
        words.append(repr((code.co_code, constants, code.co_names, code.co_varnames)))
        used = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
        for module in [value for value in used.values() if isinstance(value, ModuleType) and value.__name__.startswith("memdiag.")]:
            used |= {name: vars(module)[name] for name in code.co_names if name in vars(module)}
        for name, value in used.items():
            value = getattr(value, "py_func", value)
            if isinstance(value, FunctionType):
                _tell(value, words, seen)
            elif isinstance(value, int | float | tuple):
                words.append(f"{name}={value!r}")


def _codes(code: CodeType) -> list[CodeType]:
    return [code, *(inner for value in code.co_consts if isinstance(value, CodeType) for inner in _codes(value))]
