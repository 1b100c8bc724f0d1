"""Shapes of the classes that several commands write as JSON: findings and notes, the card, and moments."""

from __future__ import annotations

from memdiag.render.support.shape import Shape
from memdiag.results.finding import Finding
from memdiag.results.outlook import Outlook, Rest
from memdiag.results.report import CardReport, Peak, ReportMoment, Usage

_USAGE = ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes")
_PEAK = (*_USAGE, "at_event", "at_us", "phase", "step")

FINDING = Shape(Finding, without=frozenset({"weight_bytes"}))
CARD = Shape(CardReport, null_if_empty=frozenset({"outside_basis"}))
MOMENTS = (Shape(Usage, _USAGE), Shape(Peak, _PEAK), Shape(ReportMoment, ("kind", *_PEAK, "lost_bytes")))
OUTLOOK = Shape(
    Outlook,
    ("failed_at_event", "failed_request_bytes", "failed_step", "estimate", "rerun_command"),
    null_if_negative=frozenset({"failed_step"}),
)
REST = Shape(Rest, null_if_negative=frozenset({"step"}))
