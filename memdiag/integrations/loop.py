"""Records some steps of a training loop, writes the report beside the checkpoints, and explains out-of-memory errors.

For torchtitan, verl and other programs with their own loop::

    with TrainingRecorder("outputs/memdiag", steps="3:6") as memory:
        for batch in batches:
            train(batch)
            memory.step()

The modules of the other frameworks call the same class. A failure of memdiag becomes one warning on stderr and never
ends the training. Wrong arguments are errors at once.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from memdiag.recorder.guard import contained
from memdiag.recorder.in_program import Recording
from memdiag.recorder.process import number
from memdiag.runs.explaining import explain_error
from memdiag.runs.order import settings_of
from memdiag.text import phrase

if TYPE_CHECKING:
    from types import TracebackType

    from memdiag.results.report import Report
    from memdiag.trace.model import Trace

_MOST_EVENTS = 2_000_000


def rank_here() -> int:
    """Returns the rank of this process: from torch.distributed, else from ``RANK``, else 0."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return number("RANK") or 0


def log_warning(text: str) -> None:
    """Logs a text to the logger "memdiag", at a level that Python shows by default."""
    logging.getLogger("memdiag").warning(text)


class TrainingRecorder:
    """Records steps of a training on chosen ranks.

    Args:
        folder: Folder for the files, for example beside the checkpoints: ``rank0.pkl`` and ``rank0.html``.
        steps: Steps to record, as ``FIRST:LAST`` (LAST is not recorded), counted from 0 at the start. ":" records all.
        ranks: Ranks that record, or "all". Every rank explains its own out-of-memory error.
        backends: "cuda", "npu", "xpu", "cpu"; empty for the accelerators that the process uses, else the CPU.
        html: Whether to write the interactive page.
        log: Receives each text for the log. Default: the logger "memdiag", level warning.
        rank: Rank of this process. Default: see ``rank_here``.

    Attributes:
        report: The report of the recorded steps, or None before they are complete.
        trace_path: The trace that was written, or None.

    Raises:
        MemdiagError: ``steps`` or ``backends`` cannot be read.
    """

    def __init__(
        self,
        folder: str | Path = "memdiag",
        *,
        steps: str = ":5",
        ranks: Collection[int] | Literal["all"] = (0,),
        backends: Sequence[str] = (),
        html: bool = True,
        log: Callable[[str], None] = log_warning,
        rank: int | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._settings = settings_of(list(backends), steps, 0, _MOST_EVENTS, names=True)
        self._ranks = ranks
        self._html = html
        self._log = log
        self._rank = rank
        self._running: Recording | None = None
        self._attempts = 0
        self.report: Report | None = None
        self.trace_path: Path | None = None

    @property
    def is_running(self) -> bool:
        """Whether steps are being recorded."""
        return self._running is not None

    @contained
    def start(self, *, declares_steps: bool = False) -> None:
        """Starts the recording, if this rank records. Call it before the first step.

        Args:
            declares_steps: Whether the program will call ``step`` at the end of each step. Otherwise, memdiag counts
                optimizer steps until the first call.
        """
        rank = rank_here() if self._rank is None else self._rank
        if self._running is not None or (self._ranks != "all" and rank not in self._ranks):
            return
        self._attempts += 1
        suffix = f"-{self._attempts}" if self._attempts > 1 else ""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"rank{rank}{suffix}.pkl"
        path.unlink(missing_ok=True)  # a file of an earlier run would be taken for this one
        self._running = Recording(path, **self._settings)
        self._running.start()
        if declares_steps:
            self._running.declare_steps()
        atexit.register(self._at_exit)

    @contained
    def step(self) -> None:
        """Ends a step: after the last one to be recorded, writes the report. Call it once per iteration."""
        if self._running is None:
            return
        self._running.end_step()
        last = self._settings["last_step"]
        if last is not None and self._running.steps >= last:
            self.finish()

    @contained
    def finish(self) -> None:
        """Ends the recording, writes the report, and logs its headline; does nothing the second time."""
        if self._stop():
            self._report()

    @contained
    def failed(self, error: BaseException | None = None) -> None:
        """Ends the recording after an error, and logs the diagnosis if memory ran out.

        Args:
            error: The exception, or None if it is unknown: then the last allocation that failed is explained.
        """
        ooms = self._running.num_ooms if self._running is not None else 0
        recorded = self._stop()
        message = explain_error(error, self.trace_path if recorded and ooms else None)
        if message:
            self._log(phrase("integrations.oom") + "\n" + message)
        if recorded:
            self._report(in_full=not message and bool(ooms))

    def __enter__(self) -> Self:
        """Starts the recording."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the recording; exceptions pass through."""
        if error is None:
            self.finish()
        else:
            self.failed(error)

    def metrics(self) -> dict[str, float]:
        """Returns peaks of the recorded steps in bytes, by name, for the logger of a framework; empty without any."""
        found: dict[str, float] = {}
        for device in self.report.devices if self.report is not None else ():
            suffix = f"/device{device.device}" if device.device else ""
            for name, value in (
                ("peak_reserved_bytes", device.peak.reserved_bytes),
                ("peak_allocated_bytes", device.peak_allocated.allocated_bytes),
            ):
                if value is not None:
                    found[f"memdiag/{name}{suffix}"] = float(value)
        return found

    def _stop(self) -> bool:
        """Ends the recording; returns whether there is a trace."""
        running, self._running = self._running, None
        if running is None:
            return False
        atexit.unregister(self._at_exit)
        running.stop()
        path = Path(running.path)
        if not path.exists():
            self._log(phrase("integrations.nothing", steps=running.steps))
            return False
        self.trace_path = path
        return True

    def _report(self, *, in_full: bool = False) -> None:
        """Reads the trace, writes the page, and logs the headline; ``in_full``: the first screen of the report."""
        from memdiag.analyzers.report import build_report
        from memdiag.output_file import write_whole
        from memdiag.render import renderer
        from memdiag.runs.html_page import html_page
        from memdiag.sources import load

        assert self.trace_path is not None  # noqa: S101 - a trace was written
        trace: Trace = load(self.trace_path)
        self.report = build_report(trace)
        written = self.trace_path
        if self._html:
            written = self.trace_path.with_suffix(".html")
            write_whole(written, html_page(trace, self.report))
        text: Any = renderer("analyze", "terminal")(self.report) if in_full else self.report.headline
        self._log(phrase("integrations.headline", text=str(text).strip(), file=str(written)))

    @contained
    def _at_exit(self) -> None:
        """Ends a recording that the framework left open, for example because an exception ended the program."""
        error = getattr(sys, "last_value", None)
        if error is None:
            self.finish()
        else:
            self.failed(error)
