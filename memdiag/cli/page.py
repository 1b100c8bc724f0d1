"""The HTML page of a trace and its report, written for ``--html FILE`` or ``-o FILE.html``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memdiag.errors import MemdiagError
from memdiag.output_file import write_whole
from memdiag.text import phrase
from memdiag.trace.moments import DEFAULT

if TYPE_CHECKING:
    from memdiag.allocator.simulated_run import SimulatedRun
    from memdiag.results.report import Report
    from memdiag.trace.model import Trace


def read_page(path: Path | None, output: Path | None = None) -> HtmlPage | None:
    """Returns the page requested by ``--html`` or by the suffix of ``--output``; None if neither requests one.

    Raises:
        MemdiagError: Both request a page.
    """
    if path is not None and output is not None:
        raise MemdiagError(phrase("errors.two-pages"), phrase("errors.two-pages.hint"))
    path = path or output
    return None if path is None else HtmlPage(path)


@dataclass(frozen=True)
class HtmlPage:
    """A page and the file to write it to. It opens in the active language."""

    path: Path

    def write(
        self,
        trace: Trace,
        report: Report,
        at: str | int = DEFAULT,
        *,
        replay: bool = True,
        simulated: Sequence[SimulatedRun] | None = None,
    ) -> None:
        """Writes the page.

        Args:
            trace: The trace to draw.
            report: Its diagnosis.
            at: The moment at which the page opens, as for ``build_report``.
            replay: Whether to replay other settings, for curves over the recorded one.
            simulated: The simulated runs, if the caller already has them.

        Raises:
            MemdiagError: The page cannot be written.
        """
        from memdiag.cli.talk import busy, say

        with busy(phrase("progress.drawing", count=trace.num_events)):
            from memdiag.runs.html_page import html_page

            text = html_page(trace, report, at, replay=replay, simulated=simulated)
        write_whole(self.path, text)
        say(phrase("progress.wrote-page", path=str(self.path)))
