"""Graphs of several forward passes of one step that are live at once, because one backward pass uses all of them.

A training that adds up the losses of its micro-batches, and then calls backward once, keeps the graphs of all of them.
A backward for each loss computes the same gradients and keeps one graph. A trace does not show whether a loss needs
several passes, as in contrastive learning, or whether a pass uses the result of another, as in a recurrent network. So
the remedy names these conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from memdiag.analyzers.kept_passes import graphs_at, numbered
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import first_finding
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import CATEGORIES, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD136": "graphs of several forward passes wait for one backward pass"}

FEWEST = 3  # passes; two may be the views of a contrastive loss
USED = 0.8  # of their bytes are freed by the backward pass
SHARE, WARNING_SHARE = 0.1, 0.25  # of live bytes, that a backward for each pass would save
FLOOR = 64 * MIB

_FORWARD, _BACKWARD = PHASES.index("forward"), PHASES.index("backward")
_GRADIENT = CATEGORIES.index("gradient")


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD136 of every device."""
    if trace.bases.get("phase") != "marks":
        return
    for view in context.views(trace):
        yield from first_finding(view, _waiting)


def _waiting(view: DeviceView) -> Iterator[Finding]:
    """Yields MD136."""
    if view.at < 0:
        return
    device, tensors, rows = view.device, view.device.tensors, view.live
    passes, of_tensor = numbered(view)
    found = graphs_at(view, passes, of_tensor, view.at)
    graph = rows[np.isin(of_tensor[rows], found) & (tensors.step_alloc[rows] == device.events.step[view.at])]
    size, number = tensors.block_bytes[graph], of_tensor[graph]
    if len(np.unique(number)) < FEWEST or size[_are_used_together(view, graph)].sum() < USED * size.sum():
        return
    held, total = int(size.sum()), int(tensors.block_bytes[rows].sum())
    saved = held - int(np.bincount(number, weights=size).max()) - _later_gradients(view)
    if saved < max(SHARE * total, FLOOR):
        return
    num_graphs = len(np.unique(number))
    yield Finding(
        "MD136",
        phrase(
            "waiting_graphs.title",
            count=num_graphs,
            bytes=format_bytes(held),
            share=f"{held / total:.0%}",
            when=when(view),
        ),
        "warning" if saved >= WARNING_SHARE * total else "info",
        device.device,
        (
            Evidence(phrase("waiting_graphs.held"), held, "bytes", moment_name(device, view.at)),
            Evidence(phrase("waiting_graphs.count"), num_graphs, "graphs"),
            Evidence(phrase("waiting_graphs.one"), held // num_graphs, "bytes"),
        ),
        (
            Fix(
                phrase("waiting_graphs.each"),
                "code",
                phrase("kept_passes.fix.each.change"),
                phrase("waiting_graphs.each.when"),
                phrase("waiting_graphs.caveat"),
            ),
        ),
        Saving(0, saved, saved, "estimated"),
        held,
    )


def _are_used_together(view: DeviceView, rows: Array) -> Array:
    """Returns which tensors are freed by the backward that follows, before any other forward pass begins."""
    device, freed = view.device, view.device.tensors.free_requested_at[rows]
    phase = device.events.phase
    backward = view.at + np.flatnonzero(phase[view.at :] == _BACKWARD)
    begin = int(backward[0]) if len(backward) else device.num_events
    forward = begin + np.flatnonzero(phase[begin:] == _FORWARD)
    end = int(forward[0]) if len(forward) else device.num_events
    found: Array = (freed >= begin) & (freed < end) & (view.device.tensors.phase_free[rows] == _BACKWARD)
    return found


def _later_gradients(view: DeviceView) -> int:
    """Returns the bytes of gradients that the step allocates after the moment: they would be live earlier."""
    tensors = view.device.tensors
    mine = (tensors.category == _GRADIENT) & (tensors.step_alloc == view.device.events.step[view.at])
    return int(tensors.block_bytes[mine & (tensors.alloc_at > view.at)].sum())
