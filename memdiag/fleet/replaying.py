"""Replays the trace of one rank with its own settings and with others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED
from memdiag.allocator.scenario import Beginning, Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.workload import ALLOC
from memdiag.errors import MemdiagError
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import OOM


def subject_of(trace: Trace) -> Subject | None:
    """Returns the calibrated worst device of a trace (as in ``facts``), or None if there is nothing to replay."""
    usable = [device for device in trace.devices if len(device.tensors) and device.num_events]
    if not usable:
        return None
    subject = Subject.of(
        trace, max(usable, key=lambda device: (int((device.events.action == OOM).sum()), device.most_held_bytes))
    )
    return subject if bool((subject.workload.op == ALLOC).any()) else None


def replayed(trace: Trace, conf: str, capacity: int | None) -> dict[str, Any]:
    """Replays a trace with its own settings and with others, both from an empty cache.

    Args:
        trace: The trace.
        conf: The other settings.
        capacity: Bytes of the device, or None for the recorded value.

    Returns:
        ``before``, ``after``: reserved peak, and whether a request fails; ``error_bytes``: the calibration error (None
        if unknown).

    Raises:
        MemdiagError: There is nothing to replay.
    """
    subject = subject_of(trace)
    if subject is None:
        raise MemdiagError(phrase("errors.no-allocations", path=str(trace.path)), phrase("errors.from-beginning.short"))
    own = subject.recorded if capacity is None else subject.on_card(capacity)
    return {
        "before": _outcome(subject, own),
        "after": _outcome(subject, replace(own, conf=conf)),
        "error_bytes": subject.calibration.error_bytes,
    }


def _outcome(subject: Subject, scenario: Scenario) -> dict[str, Any]:
    replay = subject.replayer(subject.workload, scenario, Beginning(keep_start=False))
    failed = bool(np.isin(replay.status, (OUT_OF_MEMORY, UNDEFINED)).any())
    return {"peak_bytes": int(replay.reserved.max(initial=0)), "fails": failed}
