"""The only module that imports numba: hot loops run compiled, or as plain Python if numba is not installed.

Compiled code is cached on disk, so only the first run of an installation waits for the compiler (compiling.py estimates
how long). The cache is next to the module, else in numba's user cache, else in a temporary folder. numba recompiles a
function when its own file changes, but not when the file of a function that it calls changes. So the cache name of a
function is a digest of its code and of all code that it calls.
"""

from __future__ import annotations

import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

KEPT: list[Any] = []  # functions of njit and lean in the modules imported so far

numba: Any
try:
    import numba
except ImportError:  # slow, but correct
    numba = None


def njit(function: F) -> F:
    """Compiles ``function`` with numba, cached on disk; returns it unchanged if numba is not installed."""
    return _compile(function, is_kept=True)


def njit_part(function: F) -> F:
    """Compiles ``function`` as a part of functions that ``njit`` caches on disk. Only compiled code may call it."""
    return _compile(function, is_kept=False)


def lean(function: F) -> F:
    """Like ``njit``, for a function that creates no array: reference counting of its arguments is omitted."""
    return _compile(function, is_kept=True, _nrt=False)


def lean_part(function: F) -> F:
    """Like ``njit_part``, for a function that creates no array.

    In a short function, reference counting takes longer than the work.
    """
    return _compile(function, is_kept=False, _nrt=False)


def _compile(function: F, *, is_kept: bool, **options: bool) -> F:
    if numba is None or numba.config.DISABLE_JIT:
        return function
    options |= {"nogil": True, "boundscheck": os.environ.get("NUMBA_BOUNDSCHECK") == "1"}
    if is_kept:
        function.__qualname__ = f"{function.__qualname__}_{stamp(function)}"
        kept: F | None = _cached(function, options)
        if kept is not None:
            _hasten(kept, counts=options.get("_nrt", True))
            KEPT.append(kept)
            return kept
    # Without entry points for Python and C, a part compiles faster; Python crashes if it calls one.
    compiled: F = numba.njit(no_cpython_wrapper=not is_kept, no_cfunc_wrapper=not is_kept, **options)(function)
    if is_kept:
        KEPT.append(compiled)
    return compiled


def _cached(function: F, options: dict[str, bool]) -> F | None:
    """Returns the function, cached in the first writable folder, or None if there is no such folder."""
    try:
        kept: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor numba's user cache is writable
        folder = temporary_folder()
        if folder is None:
            return None
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
        try:
            kept = numba.njit(cache=True, **options)(function)
        except RuntimeError:
            return None
        finally:
            numba.config.CACHE_DIR = before
    return kept


def temporary_folder() -> Path | None:
    """Returns this user's own temporary folder, created if necessary, or None if none is safe to load code from."""
    if not hasattr(os, "getuid"):  # Windows: the folder of temporary files belongs to the user
        return Path(tempfile.gettempdir()) / "memdiag"
    try:
        folder = Path(tempfile.gettempdir()) / f"memdiag-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_own else None


def _hasten(compiled: Any, *, counts: bool) -> None:
    """Makes loading compiled code from disk fast.

    Before it looks at the cache, numba initialises its whole compiler, which takes longer than memdiag's start-up.
    Cached code needs only the addresses of numba's own functions, and, if it creates arrays (``counts``), numba's
    reference counting. With an unknown version of numba, nothing is changed.
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


def folder_of(compiled: Any) -> Path | None:
    """Returns the folder with the cached code of a function of ``njit`` or ``lean``, or None if there is none."""
    path = compiled.stats.cache_path
    return Path(path) if path else None


def is_cold(compiled: Any) -> bool:
    """Returns whether a function of ``njit`` or ``lean`` has to be compiled before it can run."""
    if numba is None or numba.config.DISABLE_JIT:
        return False
    folder = folder_of(compiled)
    return not compiled.signatures and (
        folder is None or not any(folder.glob(f"*.{compiled.py_func.__qualname__}-*.nbi"))
    )


def stamp(function: Any) -> str:
    """Returns a digest of ``function``: its code, the constants it uses, and the same of the functions it calls.

    Module names are included: compiled code imports the modules of all functions in it, so it cannot be loaded after
    one of them has moved.
    """
    words: list[str] = []
    for each in called_by(function):
        for code in _codes(each.__code__):
            constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
            words.append(repr((each.__module__, code.co_code, constants, code.co_names, code.co_varnames)))
            for name, value in _used(each, code).items():
                if isinstance(value, int | float | tuple):
                    words.append(f"{name}={value!r}")
                elif isinstance(value, np.ndarray):  # a table: numba compiles its content in
                    words.append(f"{name}={value.tobytes()!r}")
    return f"{zlib.crc32(' '.join(words).encode()):08x}"


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
    """Returns the globals that a part of a function names, and the members it may name of modules of this package."""
    used = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for module in [
        value for value in used.values() if isinstance(value, ModuleType) and value.__name__.startswith("memdiag.")
    ]:
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
