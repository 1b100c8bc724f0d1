"""Prepares revisions while others run, because the installation of a version takes seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from memdiag.gates.revisions import Prepared, Revisions


class Ahead:
    """Prepares revisions in two threads. Use it in a ``with`` block.

    Args:
        revisions: What is searched. Those that share a checkout are prepared only when they are needed, one at a time.
        command: The command.
    """

    def __init__(self, revisions: Revisions, command: Sequence[str]) -> None:
        self._revisions, self._command = revisions, command
        self._threads = ThreadPoolExecutor(2, "memdiag-bisect")
        self._begun: dict[str, Future[Prepared]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    def expect(self, revisions: Iterable[str]) -> None:
        """Prepares revisions that will probably be needed, in this order."""
        for revision in revisions if self._revisions.is_separate else ():
            self._begin(revision)

    def get(self, revision: str) -> Prepared:
        """Returns a revision that is ready to run.

        Raises:
            MemdiagError: It cannot be checked out or installed.
        """
        self._begin(revision)
        return self._begun[revision].result()

    def _begin(self, revision: str) -> None:
        if revision not in self._begun:
            self._begun[revision] = self._threads.submit(self._revisions.prepare, revision, self._command)
