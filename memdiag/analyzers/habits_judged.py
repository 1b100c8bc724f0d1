"""What replays answer that a trace alone does not: what one buffer would save, and how much headroom would end retries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memdiag.allocator.result import Replay
from memdiag.allocator.workload import ALLOC, FREE, FREE_COMPLETED, Workload
from memdiag.analyzers.context import DeviceView
from memdiag.analyzers.scattered import FLOOR, find_groups
from memdiag.analyzers.simulation import Scenario, Subject
from memdiag.errors import MemdiagError
from memdiag.findings import Evidence, Finding, Saving
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

WARNING_SHARE = 0.05  # of the peak
MOST_SEARCHED = 200_000  # events up to which a search over replays takes about a second
_PAGE = 2 * MIB
_ALIGNMENT = 16  # bytes at which views into a buffer begin


def merged(workload: Workload, rows: Array) -> Workload | None:
    """Returns ``workload`` with some tensors in one buffer, made with the first of them and freed with the last; None: it cannot be.

    Args:
        workload: What the program asked for; its numbers are rows in Tensors.
        rows: Numbers of the tensors.
    """
    member = np.zeros(workload.num_tensors, bool)
    member[rows[rows < workload.num_tensors]] = True
    mine = (workload.tensor >= 0) & member[np.maximum(workload.tensor, 0)]
    makes = np.flatnonzero(mine & (workload.op == ALLOC))
    if len(makes) != len(rows) or len(makes) < 2 or len(np.unique(workload.pool[makes])) > 1 or len(np.unique(workload.stream[makes])) > 1:
        return None
    size = int((-(-workload.size[makes] // _ALIGNMENT) * _ALIGNMENT).sum())
    first = int(workload.tensor[makes[0]])
    ends = np.flatnonzero(mine & np.isin(workload.op, (FREE, FREE_COMPLETED)))
    last = int(workload.tensor[ends[-1]]) if len(np.unique(workload.tensor[ends])) == len(makes) else -1
    kept = ~mine
    kept[makes[0]] = True
    sizes, numbers = workload.size.copy(), workload.tensor.copy()
    sizes[makes[0]] = size
    if last >= 0:
        leaves = mine & (workload.tensor == last) & (workload.op != ALLOC)
        kept |= leaves
        numbers[leaves] = first
    columns = {name: getattr(workload, name)[kept] for name in ("op", "stream", "pool", "row")}
    return replace(workload, **columns, size=sizes[kept], tensor=numbers[kept])


def one_buffer(subject: Subject, view: DeviceView, question: Finding) -> Finding | None:
    """Returns MD122 with what one buffer would save; None: a replay shows that it would save nothing worth it."""
    group = next((group for group in find_groups(view) if group.name == question.evidence[0].where), None)
    workload = merged(subject.workload, group.rows) if group is not None else None
    if workload is None:
        return question
    before, after = _replay(subject, subject.workload, subject.recorded), _replay(subject, workload, subject.recorded)
    peak, with_buffer = int(before.reserved.max(initial=0)), int(after.reserved.max(initial=0))
    saved, error = peak - with_buffer, subject.calibration.error_bytes or 0
    if saved <= max(error, FLOOR) or int(after.ooms.max(initial=0)) > int(before.ooms.max(initial=0)):
        return None
    return replace(
        question,
        severity="warning" if saved >= WARNING_SHARE * peak else "info",
        evidence=(*question.evidence, Evidence("reserved peak with one buffer in their place, replayed", with_buffer, "bytes")),
        saving=Saving(saved - error, saved, saved + error, "simulated"),
        weight_bytes=saved,
    )


def headroom(subject: Subject, view: DeviceView, question: Finding) -> Finding:
    """Returns MD401 with how much more room would end the retries, where a replay on a larger device tells."""
    own = subject.recorded
    if own.capacity_bytes is None or view.device.num_events > MOST_SEARCHED:
        return question
    if not _retries(subject, own):  # the model does not show what was recorded
        return question
    capacity, low, high = own.capacity_bytes, 0, 1
    while _retries(subject, replace(own, capacity_bytes=capacity + high * _PAGE)):
        low, high = high, 2 * high
        if high * _PAGE > capacity:
            twice = _retries(subject, replace(own, capacity_bytes=2 * capacity))
            return replace(
                question, evidence=(*question.evidence, Evidence("on a device twice as large there would still be", twice, "times"))
            )
    while high - low > 1:
        middle = (low + high) // 2
        if _retries(subject, replace(own, capacity_bytes=capacity + middle * _PAGE)):
            low = middle
        else:
            high = middle
    more = int(high * _PAGE * (own.fraction if own.fraction is not None else 1))
    where = f"beside the {format_bytes(capacity)} there were" + ("" if subject.limits.is_known else ", as far as refusals tell")
    return replace(question, evidence=(*question.evidence, Evidence("more room with which none would be, replayed", more, "bytes", where)))


def _retries(subject: Subject, scenario: Scenario) -> int:
    return int(_replay(subject, subject.workload, scenario).retries.max(initial=0))


def _replay(subject: Subject, workload: Workload, scenario: Scenario) -> Replay:
    replay: Replay = subject.replayer(
        workload, scenario.policy, conf=scenario.conf, torch_version=scenario.torch_version, capacity=scenario.capacity_bytes,
        fraction=scenario.fraction, log=False, keep_start=True,
    )  # fmt: skip
    return replay


def answered(subject: Subject, view: DeviceView, question: Finding) -> Finding | None:
    """Returns a finding with what replays say to it; None: they refute it. What cannot be replayed stays as it is."""
    try:
        return one_buffer(subject, view, question) if question.code == "MD122" else headroom(subject, view, question)
    except MemdiagError:  # the file claims settings that its allocator would refuse
        return question


CODES = ("MD122", "MD401")
