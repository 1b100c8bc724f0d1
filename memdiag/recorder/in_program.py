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


class Recording:
    """A recording of this process that the caller starts and stops.

    In a process that ``memdiag record`` already records, that recording just continues, and ``stop`` copies the trace
    so far.

    Args:
        path: The file to write; an existing file is overwritten.
        settings: Fields of ``memdiag.recorder.config.Config``.
    """

    def __init__(self, path: str | os.PathLike[str], **settings: Any) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._settings = settings
        self._session: Any = None
        self._is_own = False
        self._steps_before = 0
        self._ooms_before = 0

    def start(self) -> None:
        """Starts the recording.

        Raises:
            ImportError: torch is not installed.
        """
        import torch

        session = part("session")
        self._session = session.current()
        self._is_own = self._session is None
        if self._is_own:
            config = part("config").Config(os.path.dirname(self.path), file=self.path, **self._settings)
            self._session = session._session = session.Session(config, torch)
            safe = part("guard").contained
            safe(self._session.begin)()
            if "torch_npu" in sys.modules:
                safe(self._session.watch_npu)()
        self._steps_before, self._ooms_before = self._session.training.steps, len(self._session.ooms)

    @property
    def steps(self) -> int:
        """Number of training steps since the start."""
        return 0 if self._session is None else int(self._session.training.steps - self._steps_before)

    @property
    def num_ooms(self) -> int:
        """Number of allocations that failed since the start; 0 on backends that do not report them."""
        return 0 if self._session is None else int(len(self._session.ooms) - self._ooms_before)

    def declare_steps(self) -> None:
        """From now on, each call of ``end_step`` is one training step, with any number of optimizer steps."""
        if self._session is not None:
            part("guard").contained(self._session.training.declare_steps)()

    def end_step(self) -> None:
        """Ends a training step, unless a hook after an optimizer step has ended it already."""
        if self._session is not None:
            part("guard").contained(self._session.training.end_declared_step)()

    def stop(self) -> None:
        """Ends the recording and writes the file; safe to call twice."""
        ended, self._session = self._session, None
        if ended is None:
            return
        if not self._is_own:
            part("guard").contained(_copy)(ended, self.path)
            return
        ended.last_sample()
        ended.end()
        part("session")._session = None


def arm() -> str:
    """Lets ``memdiag watch`` attach to this process later, without a debugger; costs nothing until then.

    Returns:
        The path of a socket that only this user can open.

    Raises:
        OSError: The socket cannot be created.
    """
    path: str = part("watching.arming").arm()
    return path


@contextlib.contextmanager
def recording(
    path: str | os.PathLike[str] = "trace.pkl",
    *,
    backends: tuple[str, ...] = (),
    max_events: int = 2_000_000,
    every: int = 0,
    names: bool = True,
    holders: bool = False,
) -> Iterator[None]:
    """Records this process while the block runs, and writes a trace.

    In a process that ``memdiag record`` already records, recording just continues, and the trace so far is also written
    to ``path``.

    Args:
        path: The file to write; an existing file is overwritten.
        backends: "cuda", "npu", "xpu", "cpu", "mps", or "accelerator" for the counters of any accelerator; empty for
            the accelerators that the process uses, else the CPU.
        max_events: Number of most recent entries to retain per device.
        every: Interval in steps at which the file is also written; 0 for only at the end.
        names: Whether tensors are named.
        holders: Whether to search for who holds the tensors that accumulate.

    Raises:
        ImportError: torch is not installed.
    """
    settings = {"max_events": max_events, "every": every, "names": names, "holders": holders}
    running = Recording(path, backends=tuple(backends), **settings)
    running.start()
    try:
        yield
    finally:
        running.stop()


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
