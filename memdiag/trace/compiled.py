"""The one door to numba: loops over millions of events run compiled, or, where numba is missing, as the plain Python they are.

Compiled code is kept on disk, so only the first run of an installation waits for the compiler (compiling.py estimates
how long). It is kept beside the module, or else in numba's cache of the user, or else in a temporary folder. numba
compiles a function again when its own file changes, but not when the file of a function that it calls changes. So the
name under which a function is kept is a digest of its code and of all code below it.
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

F = TypeVar("F", bound=Callable[..., Any])

KEPT: list[Any] = []  # the functions of njit and lean whose modules were imported so far

numba: Any
try:
    import numba
except ImportError:  # slow, but right
    numba = None


def njit(function: F) -> F:
    """Compiles ``function`` with numba, cached on disk; returns it unchanged where numba is missing."""
    return _compile(function, is_kept=True)


def njit_part(function: F) -> F:
    """Compiles ``function`` as a part of others that ``njit`` keeps on disk. Only compiled code may call it."""
    return _compile(function, is_kept=False)


def lean(function: F) -> F:
    """The same as ``njit`` for a function that makes no array: it need not count who has those that it was given."""
    return _compile(function, is_kept=True, _nrt=False)


def lean_part(function: F) -> F:
    """The same as ``njit_part`` for a function that makes no array.

    For a short one the counting takes longer than the work.
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
    # Without entries for Python and C, a part takes less time to compile; Python crashes if it calls one.
    compiled: F = numba.njit(no_cpython_wrapper=not is_kept, no_cfunc_wrapper=not is_kept, **options)(function)
    if is_kept:
        KEPT.append(compiled)
    return compiled


def _cached(function: F, options: dict[str, bool]) -> F | None:
    """The function, cached in the first folder that can be written; None: there is no such folder."""
    try:
        kept: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor numba's cache of the user can be written
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
    """Returns this user's own folder for temporary files, made now if need be; None: there is none that is safe to load code from."""
    if not hasattr(os, "getuid"):  # Windows: its folder of temporary files belongs to the user
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


def folder_of(compiled: Any) -> Path | None:
    """Returns where the code of a function of ``njit`` or ``lean`` is kept; None: nowhere."""
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
    """Returns a short name for what ``function`` is made of: its code, the constants it uses, and the same of what it calls.

    Modules count too: compiled code imports those of all functions in it, so it cannot be loaded once one of them has
    moved.
    """
    words: list[str] = []
    for each in called_by(function):
        for code in _codes(each.__code__):
            constants = [value for value in code.co_consts if not isinstance(value, CodeType)]
            words.append(repr((each.__module__, code.co_code, constants, code.co_names, code.co_varnames)))
            words += [
                f"{name}={value!r}"
                for name, value in _used(each, code).items()
                if isinstance(value, int | float | tuple)
            ]
    return f"{zlib.crc32(' '.join(words).encode()):08x}"


def called_by(function: Any) -> list[FunctionType]:
    """Returns ``function`` and all functions of this package that it calls, directly or not, each once."""
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
    """The globals that a part of a function names, and the members that it may name of modules of this package."""
    used = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for module in [
        value for value in used.values() if isinstance(value, ModuleType) and value.__name__.startswith("memdiag.")
    ]:
        used |= {name: vars(module)[name] for name in code.co_names if name in vars(module)}
    return used


def num_instructions(function: FunctionType) -> int:
    """Returns the length of a function's bytecode, without the functions that it calls; compiling takes time in proportion."""
    return sum(len(code.co_code) // 2 for code in _codes(function.__code__))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _codes(value)
