"""The interactive HTML page of a trace and its report, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from memdiag.render import renderer
from memdiag.runs.simulated_runs import runs_of_report
from memdiag.text import language
from memdiag.trace.moments import DEFAULT
from memdiag.views.picture import build_picture
from memdiag.views.policies import simulated_curves

if TYPE_CHECKING:
    from memdiag.allocator.simulated_run import SimulatedRun
    from memdiag.results.report import Report
    from memdiag.trace.model import Trace


def html_page(
    trace: Trace,
    report: Report,
    at: str | int = DEFAULT,
    *,
    replay: bool = True,
    simulated: Sequence[SimulatedRun] | None = None,
) -> str:
    """Returns the page in the active language.

    Args:
        trace: The trace to draw.
        report: Its diagnosis.
        at: The moment at which the page opens, as for ``build_report``.
        replay: Whether to replay other settings, for curves over the recorded one.
        simulated: The simulated runs, if the caller already has them.
    """
    runs = simulated if simulated is not None else runs_of_report(trace, report) if replay else ()
    picture = build_picture(trace, report, at=at, simulated=simulated_curves(runs))
    text: str = renderer("analyze", "html")(picture, language())
    return text
