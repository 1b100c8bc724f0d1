"""The recorder's API for programs: ``memdiag.mark("eval")`` and ``with memdiag.recording("out.pkl"):``.

``mark`` has no effect without a recording, so it can remain in the program. The recorder may already be in the process
under another name: ``memdiag record`` loads it without memdiag (see ``site/sitecustomize.py``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

RIDING = "memdiag_recorder"


def part(name: str) -> Any:
    """Returns a module of the recorder that is active in the process, or else of this one."""
    package = RIDING if RIDING in sys.modules else __package__
    return import_module(f"{package}.{name}")


def mark(name: str) -> None:
    """Marks this moment in the recording with a name; has no effect without a recording."""
    package = RIDING if RIDING in sys.modules else __package__
    session = sys.modules.get(f"{package}.session")
    current = session.current() if session is not None else None
    if current is not None:
        part("guard").contained(current.mark)(name)


@contextlib.contextmanager
def recording(
    path: str | os.PathLike[str] = "trace.pkl",
    *,
    backends: tuple[str, ...] = (),
    max_events: int = 2_000_000,
    every: int = 0,
    names: bool = True,
) -> Iterator[None]:
    """Records this process while the block runs, and writes a trace.

    In a process that ``memdiag record`` already records, recording just continues, and the trace so far is also written
    to ``path``.

    Args:
        path: The file to write; an existing file is overwritten.
        backends: "cuda", "npu", "xpu", "cpu"; empty for the accelerators that the process uses, else the CPU.
        max_events: Number of most recent entries to retain per device.
        every: Interval in steps at which the file is also written; 0 for only at the end.
        names: Whether tensors are named.

    Raises:
        ImportError: torch is not installed.
    """
    import torch

    file = os.path.abspath(os.fspath(path))
    session = part("session")
    if session.current() is not None:
        try:
            yield
        finally:
            part("guard").contained(_copy)(session.current(), file)
        return
    config = part("config").Config(
        os.path.dirname(file), file=file, backends=tuple(backends), max_events=max_events, every=every, names=names
    )
    current = session._session = session.Session(config, torch)
    safe = part("guard").contained
    safe(current.begin)()
    if "torch_npu" in sys.modules:
        safe(current.watch_npu)()
    try:
        yield
    finally:
        current.last_sample()
        current.end()
        session._session = None


def _copy(session: Any, path: str) -> None:
    """Writes a trace of a running recording, and copies it to a path."""
    session.write("demand")
    written = next((file["path"] for file in session._written.values()), None)
    if written is None:
        return
    beside = f"{path}.{os.getpid()}.part"
    try:
        os.link(written, beside)
    except OSError:
        shutil.copyfile(written, beside)
    os.replace(beside, path)
