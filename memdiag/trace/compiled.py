"""The only module that imports numba: hot loops run compiled, or as plain Python if numba is not installed.

Compiled code is cached on disk, so an installation compiles once (compiling.py estimates how long that takes). The
cache is next to the module, else in numba's user cache, else in a temporary folder. numba recompiles a function when
its own file changes, but not when the file of a function that it calls changes. So the cache name of a function is a
digest of its code and of all code that it calls (``linking.stamp``).

Before the cache is filled, a command can read a small trace without waiting for the compiler: see ``first_run``.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, overload

from memdiag.trace import first_run, uncompiled
from memdiag.trace.linking import mark_as_part, options_of_part, relinked, stamp
from memdiag.trace.temporary import temporary_folder

F = TypeVar("F", bound=Callable[..., Any])

numba: Any
try:
    import numba
except ImportError:  # slow, but correct
    numba = None

KEPT: list[Kept] = []  # functions of njit and lean in the modules imported so far


@overload
def njit(function: F) -> F: ...
@overload
def njit(*, plain_seconds: float) -> Callable[[F], F]: ...
def njit(function: Any = None, *, plain_seconds: float | None = None) -> Any:
    """Compiles a function with numba, cached on disk.

    Args:
        function: None: returns a decorator.
        plain_seconds: Seconds that it takes as plain Python per element of its longest argument; None: too long.
    """
    return _kept(function, {}, plain_seconds)


@overload
def lean(function: F) -> F: ...
@overload
def lean(*, plain_seconds: float) -> Callable[[F], F]: ...
def lean(function: Any = None, *, plain_seconds: float | None = None) -> Any:
    """Like ``njit``, for a function that creates no array: reference counting of its arguments is omitted."""
    return _kept(function, {"_nrt": False}, plain_seconds)


def njit_part(function: F) -> F:
    """Marks a function that compiled functions call. Called from Python, it is plain Python."""
    mark_as_part(function, {})
    return function


def lean_part(function: F) -> F:
    """Like ``njit_part``, for a function that creates no array.

    In a short function, reference counting takes longer than the work.
    """
    mark_as_part(function, {"_nrt": False})
    return function


def is_compiling() -> bool:
    """Returns whether functions run as compiled code, rather than as plain Python."""
    return numba is not None and not numba.config.DISABLE_JIT


class _NotOnDiskError(Exception):
    """Raised instead of compiling, if the code is not in the cache."""


class Kept:
    """A function of ``njit`` or ``lean``.

    Attributes:
        py_func: The function as plain Python.
        plain_seconds: See ``njit``.
    """

    def __init__(self, function: Any, options: dict[str, bool], plain_seconds: float | None) -> None:
        self.py_func = self.__wrapped__ = function
        self.plain_seconds = plain_seconds
        self.__doc__, self.__name__, self.__qualname__ = function.__doc__, function.__name__, function.__qualname__
        self.__module__ = function.__module__
        self._options = options
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function."""
        if not is_compiling():
            return self._run_plain(arguments)
        if self.plain_seconds is None or not first_run.is_on():
            return self.dispatcher(*arguments)
        return self._run_soonest(arguments, self.plain_seconds)

    def _run_soonest(self, arguments: tuple[Any, ...], plain_seconds: float) -> Any:
        """Runs the cached code; without any, plain Python, unless compiling takes less time."""
        if not self.is_cold():
            _thread.may_compile = False
            try:
                return self.dispatcher(*arguments)
            except _NotOnDiskError:  # the cache has no code for these argument types
                pass
            finally:
                _thread.may_compile = True
        if first_run.is_worth_compiling(arguments, plain_seconds):
            return self.dispatcher(*arguments)
        job = first_run.job_of(self._home(), self.__qualname__, f"{self.folder} {self._code_name}", arguments)
        if job is None:
            return self.dispatcher(*arguments)
        if first_run.was_lost(job):
            result = self.dispatcher(*arguments)
            first_run.forget(job)
            return result
        if self.folder is not None:
            first_run.add(job)
        with first_run.as_plain_python():
            return self._run_plain(arguments)

    def _home(self) -> str:
        """Returns a module that has the function as a member.

        This may differ from ``__module__``: another module creates the loop with the functions of a policy.
        """
        own: str = self.__module__
        if getattr(sys.modules[own], self.__qualname__, None) is self:
            return own
        for name, module in sys.modules.items():
            if any(value is self for value in getattr(module, "__dict__", {}).values()):
                return name
        return own

    def _run_plain(self, arguments: tuple[Any, ...]) -> Any:
        return uncompiled.run(self.py_func, arguments, makes_arrays=self._options.get("_nrt", True))

    @property
    def dispatcher(self) -> Any:
        """Numba's form of the function, for which Python's globals are replaced by compiled ones."""
        if self._dispatcher is None:
            self._dispatcher = _dispatcher(self.py_func, self._options)
        return self._dispatcher

    @property
    def folder(self) -> Path | None:
        """Folder of its cached code; None if it is not cached."""
        path = self.dispatcher.stats.cache_path
        return Path(path) if path else None

    def is_cold(self) -> bool:
        """Returns whether its code must still be compiled."""
        if not is_compiling() or self.dispatcher.signatures:
            return False
        return self.folder is None or not any(self.folder.glob(f"*.{self._code_name}-*.nbi"))

    @property
    def _code_name(self) -> str:
        return str(self.dispatcher.py_func.__qualname__)

    def compile_for(self, arguments: tuple[Any, ...]) -> None:
        """Compiles for arguments of these types and caches the code on disk, without calling the function."""
        self.dispatcher.compile(tuple(numba.typeof(each) for each in arguments))


def is_cold(kept: Any) -> bool:
    """Returns whether the code of a function of ``njit`` or ``lean`` must still be compiled."""
    return bool(kept.is_cold())


def folder_of(kept: Any) -> Path | None:
    """Returns the folder with the cached code of a function of ``njit`` or ``lean``; None if it is not cached."""
    found: Path | None = kept.folder
    return found


def _kept(function: Any, options: dict[str, bool], plain_seconds: float | None) -> Any:
    if function is None:
        return lambda found: _kept(found, options, plain_seconds)
    KEPT.append(Kept(function, options, plain_seconds))
    return KEPT[-1]


_thread = threading.local()
_parts: dict[FunctionType, Any] = {}  # the compiled form of each part


def _dispatcher(function: FunctionType, options: dict[str, bool]) -> Any:
    copy = relinked(function, _compiled_part, _as_is, _parts)
    copy.__qualname__ = f"{function.__qualname__}_{stamp(function)}"
    found = _cached(copy, _all_options(options))
    if found is None:
        return numba.njit(**_all_options(options))(copy)
    _hasten(found, counts=options.get("_nrt", True))
    return found


def _all_options(options: dict[str, bool]) -> dict[str, bool]:
    return {"nogil": True, "boundscheck": os.environ.get("NUMBA_BOUNDSCHECK") == "1", **options}


def _compiled_part(function: FunctionType, copy: FunctionType) -> Any:
    options = options_of_part(function)
    if options is None:
        return copy
    # A part compiles faster without entry points for Python and C.
    return numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_all_options(options))(copy)


def _as_is(value: Any) -> Any:
    if isinstance(value, Kept):
        raise TypeError(f"{value} is called by compiled code, so it has to be a part (njit_part, lean_part)")
    return value


def _cached(function: FunctionType, options: dict[str, bool]) -> Any:
    """Returns the function, cached in the first writable folder; None if there is no such folder."""
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor numba's user cache is writable
        folder = temporary_folder()
        if folder is None:
            return None
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return None
    finally:
        numba.config.CACHE_DIR = before


def _hasten(compiled: Any, *, counts: bool) -> None:
    """Makes loading compiled code from disk fast.

    Before it looks at the cache, numba initialises its whole compiler, which takes longer than memdiag's start-up.
    Cached code needs only the addresses of numba's own functions, and, if it creates arrays (``counts``), numba's
    reference counting. Unknown versions of numba are left unchanged.
    """
    cache: Any = getattr(compiled, "_cache", None)
    runtime: Any = getattr(getattr(getattr(numba, "core", None), "runtime", None), "rtsys", None)
    if not _takes_two(getattr(cache, "_load_overload", None)) or not _takes_two(getattr(cache, "load_overload", None)):
        return
    if (counts and not callable(getattr(runtime, "initialize", None))) or not callable(getattr(cache, "flush", None)):
        return
    slow = cache.load_overload

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            if counts:
                runtime.initialize(context)
            found = cache._load_overload(signature, context)  # noqa: SLF001
        except (AttributeError, ImportError, TypeError, OSError) as error:
            found = None
            if isinstance(error, AttributeError):
                # the index names a class of another memdiag version, which numba cannot read either
                cache.flush()
        if found is None and not getattr(_thread, "may_compile", True):
            raise _NotOnDiskError
        return slow(signature, context) if found is None else found

    cache.load_overload = load_overload


def _takes_two(method: Any) -> bool:
    """Returns whether a method of numba takes a signature and a context, as in the known versions."""
    import inspect

    return callable(method) and len(inspect.signature(method).parameters) == 2
