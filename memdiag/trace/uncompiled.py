"""Runs compiled functions as plain Python, with arguments that plain Python reads fast.

Python takes 60 to 600 ns to read a number from a numpy array or record, and 20 to 40 ns from a memoryview or an object.
A function that creates no arrays therefore receives memoryviews instead of arrays, and objects instead of records. The
objects are written back when the function returns. It computes with Python's integers; the results are equal unless an
operation overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from memdiag.trace.linking import relinked

_WORD = 8  # bytes of each field of a record
_FORMATS = frozenset("?bBhHiIlLqQd")  # array formats whose elements a memoryview returns as Python numbers

_light: dict[FunctionType, Any] = {}  # copies of functions that take such arguments


def run(function: FunctionType, arguments: tuple[Any, ...], *, makes_arrays: bool) -> Any:
    """Calls a function and those that it calls as plain Python.

    Args:
        function: The original function.
        arguments: Its arguments, in the form for compiled code.
        makes_arrays: Whether the function creates arrays, so that it needs numpy's arrays.

    Returns:
        The result that compiled code would return, with Python's numbers instead of numpy's.
    """
    if makes_arrays:
        return _as_python(function(*arguments))
    write_back: list[Callable[[], None]] = []
    given = [_lightened(each, write_back) for each in arguments]
    try:
        return _as_python(relinked(function, lambda _, copy: copy, _light_global, _light)(*given))
    finally:
        for write in write_back:
            write()


def _as_python(value: Any) -> Any:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_as_python(each) for each in value)
    return value.item() if isinstance(value, np.generic) and value.dtype.names is None else value


class _LightNumpy(SimpleNamespace):
    """Module numpy with Python's integers instead of numpy's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


_LIGHT_NUMPY = _LightNumpy(int8=int, int32=int, int64=int, uint8=int, uint64=int)


def _light_global(value: Any) -> Any:
    if value is np:
        return _LIGHT_NUMPY
    return _lightened(value, []) if isinstance(value, np.ndarray | np.integer | np.bool_) else value


def _lightened(value: Any, write_back: list[Callable[[], None]]) -> Any:
    """Returns an argument in a form that plain Python reads fast, and adds the function that writes changes back."""
    if isinstance(value, np.ndarray):
        if value.dtype.names is None:
            return memoryview(value.data) if value.ndim and value.dtype.char in _FORMATS else value
        if value.ndim == 1 and value.flags.c_contiguous and _is_of_words(value.dtype):
            records = _Records(value)
            write_back.append(records.write_back)
            return records
        return value
    if isinstance(value, np.void) and value.dtype.names is not None and _is_of_words(value.dtype):
        return _light_record(value, write_back)
    if isinstance(value, tuple):
        members = [_lightened(each, write_back) for each in value]
        return type(value)(*members) if hasattr(value, "_fields") else tuple(members)
    return value.item() if isinstance(value, np.integer | np.bool_) else value


def _is_of_words(kind: Any) -> bool:
    return all(field.kind == "i" and field.itemsize == _WORD and not at % _WORD for field, at in _fields(kind).values())


def _fields(kind: Any) -> dict[str, tuple[Any, int]]:
    return {name: (field[0], field[1]) for name, field in kind.fields.items()}


class _PlainRecord:
    """A record of 64-bit integers; its classes have a slot for each word, and a name for each field."""

    __slots__: tuple[str, ...] = ()

    def __init__(self, words: list[int]) -> None:
        for name, word in zip(self.__slots__, words, strict=True):
            setattr(self, name, word)


@cache
def _class_of(kind: Any) -> tuple[type[_PlainRecord], Callable[[Any], Any]]:
    """Returns the class for a record type, and the function that reads the words of a record."""
    words = [f"word_{at}" for at in range(kind.itemsize // _WORD)]
    found = type("_LightRecord", (_PlainRecord,), {"__slots__": words})
    for name, (_, at) in _fields(kind).items():
        setattr(found, name, vars(found)[words[at // _WORD]])  # fields at the same place share its slot
    return found, attrgetter(*words) if len(words) > 1 else lambda record: (record.word_0,)


class _Records(dict[int, Any]):
    """An array of records; each record becomes an object when it is first read."""

    def __init__(self, array: Any) -> None:
        super().__init__()
        self._words = array.view(np.int64).reshape(len(array), array.dtype.itemsize // _WORD)
        self._class, self._words_of = _class_of(array.dtype)

    def __missing__(self, index: int) -> Any:
        if index < 0:
            return self[index + len(self._words)]
        record = self[index] = self._class(self._words[index].tolist())
        return record

    def __len__(self) -> int:
        return len(self._words)

    def write_back(self) -> None:
        """Copies the objects into the array."""
        read = list(self)
        if read:
            self._words[read] = np.array(list(map(self._words_of, self.values())), np.int64)


def _light_record(record: Any, write_back: list[Callable[[], None]]) -> Any:
    kind, _ = _class_of(record.dtype)
    found = kind(np.frombuffer(record.tobytes(), np.int64).tolist())

    def write() -> None:
        for name in record.dtype.names:
            record[name] = getattr(found, name)

    write_back.append(write)
    return found
