"""Evidence from replays of a changed program.

They show the saving of one buffer instead of many blocks, the headroom that avoids retries, and the peak with fewer
distinct sizes. The texts are in ``messages/habits.json``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.workload import ALLOC, FREE, FREE_COMPLETED, Workload
from memdiag.analyzers.changing_sizes import find_changing
from memdiag.analyzers.scattered import FLOOR, find_groups
from memdiag.analyzers.support.context import DeviceView
from memdiag.errors import MemdiagError
from memdiag.results.finding import Evidence, Finding, Saving
from memdiag.sizes.cuda import SMALL_LIMIT
from memdiag.text import phrase
from memdiag.trace.layout import Layout
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

WARNING_SHARE = 0.05  # fraction of the peak
MOST_SEARCHED = 200_000  # events up to which a search over replays takes about a second
_PAGE = 2 * MIB
_ALIGNMENT = 16  # bytes to which views into a buffer are aligned
_EIGHTHS = Layout(divisions=(8,) * 16)


def merged(workload: Workload, rows: Array) -> Workload | None:
    """Returns ``workload`` with some tensors in one buffer, allocated with the first and freed with the last, or None.

    Args:
        workload: The program's requests; its numbers are rows in Tensors.
        rows: Numbers of the tensors.
    """
    member = np.zeros(workload.num_tensors, bool)
    member[rows[rows < workload.num_tensors]] = True
    mine = (workload.tensor >= 0) & member[np.maximum(workload.tensor, 0)]
    makes = np.flatnonzero(mine & (workload.op == ALLOC))
    if (
        len(makes) != len(rows)
        or len(makes) < 2
        or len(np.unique(workload.pool[makes])) > 1
        or len(np.unique(workload.stream[makes])) > 1
    ):
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
    """Returns MD122 with the saving of one buffer, or None if a replay shows no worthwhile saving."""
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
        evidence=(*question.evidence, Evidence(phrase("habits.buffer"), with_buffer, "bytes")),
        saving=Saving(saved - error, saved, saved + error, "simulated"),
        weight_bytes=saved,
    )


def padded(workload: Workload, asks: Array) -> Workload:
    """Returns ``workload`` with the large requests of some events rounded up to eighths of powers of two.

    This reduces many sizes to a few.

    Args:
        workload: The program's requests; its rows are events.
        asks: Events.
    """
    mine = (workload.op == ALLOC) & (workload.size > SMALL_LIMIT) & np.isin(workload.row, asks)
    return replace(workload, size=np.where(mine, _EIGHTHS.round_size(workload.size), workload.size))


def like_sizes(subject: Subject, view: DeviceView, question: Finding) -> Finding:
    """Returns MD126 with the reserved peak for fewer distinct sizes."""
    found = find_changing(view)
    if found is None:
        return question
    before, after = (
        _replay(subject, workload, subject.recorded)
        for workload in (subject.workload, padded(subject.workload, found.asks))
    )
    peak, with_few = int(before.reserved.max(initial=0)), int(after.reserved.max(initial=0))
    is_worse = int(after.ooms.max(initial=0)) > int(before.ooms.max(initial=0))
    where = phrase("habits.rounded.oom") if is_worse else phrase("habits.rounded.recorded", bytes=format_bytes(peak))
    return replace(
        question, evidence=(*question.evidence, Evidence(phrase("habits.rounded"), with_few, "bytes", where))
    )


def headroom(subject: Subject, view: DeviceView, question: Finding) -> Finding:
    """Returns MD401 with the additional memory that would end the retries, if a replay on a larger device shows it."""
    own = subject.recorded
    if own.capacity_bytes is None or view.device.num_events > MOST_SEARCHED:
        return question
    if not _retries(subject, own):  # the model does not reproduce the recorded retries
        return question
    capacity, low, high = own.capacity_bytes, 0, 1
    while _retries(subject, replace(own, capacity_bytes=capacity + high * _PAGE)):
        low, high = high, 2 * high
        if high * _PAGE > capacity:
            twice = _retries(subject, replace(own, capacity_bytes=2 * capacity))
            return replace(question, evidence=(*question.evidence, Evidence(phrase("habits.twice"), twice, "times")))
    while high - low > 1:
        middle = (low + high) // 2
        if _retries(subject, replace(own, capacity_bytes=capacity + middle * _PAGE)):
            low = middle
        else:
            high = middle
    more = int(high * _PAGE * (own.fraction if own.fraction is not None else 1))
    where = phrase(
        "habits.room.known" if subject.limits.is_known else "habits.room.inferred", bytes=format_bytes(capacity)
    )
    return replace(question, evidence=(*question.evidence, Evidence(phrase("habits.room"), more, "bytes", where)))


def _retries(subject: Subject, scenario: Scenario) -> int:
    return int(_replay(subject, subject.workload, scenario).retries.max(initial=0))


def _replay(subject: Subject, workload: Workload, scenario: Scenario) -> Replay:
    replay: Replay = subject.replayer(workload, scenario)
    return replay


def answered(subject: Subject, view: DeviceView, question: Finding) -> Finding | None:
    """Returns a finding with evidence from replays, or None if they refute it.

    Without a replay the finding is unchanged.
    """
    try:
        return _ANSWERS[question.code](subject, view, question)
    except MemdiagError:  # the file has settings that its allocator would refuse
        return question


_ANSWERS: dict[str, Callable[[Subject, DeviceView, Finding], Finding | None]] = {
    "MD122": one_buffer,
    "MD126": like_sizes,
    "MD401": headroom,
}
CODES = tuple(_ANSWERS)
