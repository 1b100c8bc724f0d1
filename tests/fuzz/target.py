"""The contract of a reader for any bytes: it returns a consistent Trace, or raises MemdiagError.

Every other outcome is a find.
"""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.errors import MemdiagError
from memdiag.registry import SOURCES
from memdiag.trace.model import DeviceTrace, Trace

# Messages of compiled code and numpy if a reader trusts the file: the refusal is correct, but this reason is not.
_SLIPS = (
    "out of bounds",
    "broadcast",
    "has no attribute",
    "not subscriptable",
    "unsupported operand",
    "positional argument",
    "size changed",
    "more memory than this machine has",
    "not enough memory",
)
PATIENCE_SECONDS = 20
_HARD_LIMIT_SECONDS = 300
_last = ""


def last() -> str:
    """Returns the text of the last outcome: the refusal, or the notes and oddities of the trace."""
    return _last


class Find(Exception):
    """An outcome that violates the contract."""


class TooSlow(Find):
    """Raised if a reader does not return in time."""


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """Raises ``TooSlow`` after ``seconds``, if the system has signals and no compiled loop blocks them."""

    def ring(*_: Any) -> None:
        raise TooSlow(f"not done after {seconds} s")

    old = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def available() -> list[str]:
    """Returns the registered sources."""
    found = []
    for name, target in SOURCES.targets.items():
        try:
            SOURCES[name]
        except ModuleNotFoundError as error:
            if error.name != target:
                raise
        else:
            found.append(name)
    return found


def outcome(source: str, path: Path, then: Callable[[Trace], None] | None = None) -> str:
    """Reads ``path`` with one source and returns "opened" or "refused".

    Args:
        source: Name in the registry.
        path: The input.
        then: Called with a trace that opens.

    Raises:
        Find: The outcome is not allowed; use a consistent trace or a good refusal (other exceptions are finds too).
    """
    reader = SOURCES[source]
    reader.sniff(path.read_bytes()[: 1 << 16])
    for attempt in (1, 2):
        begin = time.monotonic()
        with patience(_HARD_LIMIT_SECONDS):
            kind = _outcome(reader, path, then)
        if time.monotonic() - begin < PATIENCE_SECONDS:
            return kind
        if attempt == 2:  # the first attempt may have included compilation
            raise TooSlow(f"done after more than {PATIENCE_SECONDS} s only")
    return kind


def _outcome(reader: Any, path: Path, then: Callable[[Trace], None] | None) -> str:
    global _last  # noqa: PLW0603 - information for the fuzzer, not a result
    _last = ""
    with quiet():
        try:
            trace = reader.read(path)
        except MemdiagError as error:
            _last = error.message.replace(str(path), "")
            if not error.message or not error.hint or "\n" in error.message:
                raise Find(f"a poor refusal: {error.message!r} {error.hint!r}") from error
            if any(slip in error.message for slip in _SLIPS):
                raise Find(f"a slip of the reader as a refusal: {_last}") from error.__context__
            return "refused"
        oddities = sorted({name for device in trace.devices for name in device.anomalies})
        _last = f"{trace.backend} {[note.code for note in trace.notes]} {oddities} {sorted(trace.bases.items())}"
        check(trace)
        if then is not None:
            then(trace)
    return "opened"


@contextmanager
def quiet() -> Iterator[None]:
    """Raises ``Find`` if the body causes a warning or an exception outside any handler: both would appear on stderr."""
    said: list[str] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda event: said.append(
        f"{event.err_msg or 'ignored'}: {event.exc_value!r} in {event.object!r}"
    )
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
    finally:
        sys.unraisablehook = hook
    said += [f"{Path(w.filename).name}:{w.lineno} {w.message}" for w in warned]
    if said:
        raise Find(f"noise on stderr: {said[0]}")


def check(trace: Trace) -> None:
    """Checks the conditions that every trace must satisfy, even one from a strange file.

    Raises:
        Find: A condition is violated.
    """
    for device in trace.devices:
        _check_tensors(device)
        _check_usage(device)
        n = device.num_events
        for at in sorted({-1, 0, n // 2, n - 1} & set(range(-1, n))):
            _check_topology(device, at)
        if not isinstance(device.end["reserved"], int):
            raise Find("the end is no number")


def _demand(good: Any, what: str) -> None:
    if not np.all(good):
        raise Find(what)


def _check_tensors(device: DeviceTrace) -> None:
    tensors, n = device.tensors, device.num_events
    _demand(tensors.alloc_at >= -1, "a tensor begins before -1")
    _demand(tensors.free_completed_at <= n, "a tensor ends after the end")
    _demand(tensors.free_requested_at <= tensors.free_completed_at, "a free completes before it is asked for")
    _demand((tensors.alloc_at < tensors.free_completed_at) | (tensors.alloc_at < 0), "a tensor ends before it begins")
    _demand((tensors.group >= -1) & (tensors.group < max(len(device.groups), 1)), "a group that is not there")
    _demand((device.events.tensor >= -1) & (device.events.tensor < max(len(tensors), 1)), "a tensor that is not there")
    _demand(tensors.block_bytes >= 0, "a block of negative size")


def _check_usage(device: DeviceTrace) -> None:
    usage = device.usage
    for name in ("reserved", "allocated", "active", "requested", "cache", "stranded", "foreign"):
        _demand(usage[name] >= -1, f"negative {name}")
    if device.has_addresses:
        split = usage.reference >= 0
        free = (usage.cache + usage.stranded + usage.foreign)[split]
        _demand(usage.active[split] + free == usage.reserved[split], "the parts of reserved do not add up")
        _demand(usage.allocated <= usage.active, "more allocated than active")


def _check_topology(device: DeviceTrace, at: int) -> None:
    if not device.has_addresses:
        return
    topology = device.topology(at)
    blocks, segments = topology.blocks, topology.segments
    starts, sizes = blocks["address"], blocks["size"]
    _demand(starts[1:] >= (starts + sizes)[:-1], f"blocks overlap at event {at}")
    _demand(int(sizes.sum()) == int(segments["size"].sum()), f"blocks do not fill the segments at event {at}")
    usage = device.usage_at(at)
    _demand(int(segments["size"].sum()) == usage["reserved"], f"segments differ from reserved at event {at}")
    held = blocks["tensor"] >= 0
    _demand(int(sizes[held].sum()) == usage["active"], f"blocks differ from active at event {at}")
