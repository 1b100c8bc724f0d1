"""Assigns a training phase (initialisation, forward, backward, optimizer) and a step to every event.

Some events are markers: their stack, or a named span, identifies the phase. Events between two markers are filled in
from both. User code between a forward and a backward computes the loss. Allocations without any frame before an
optimizer step come from autograd's thread. Frees belong to the phase in which they happen.

A step ends with an optimizer step that follows a backward or a forward; several in a row count as one. Frees before the
next allocation still belong to the step: they are ``zero_grad()`` after ``step()``. If no optimizer is visible (one
that allocates nothing leaves no event), a forward after a backward begins a step. Without any markers, steps are
inferred from repetition (``periods``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memdiag.trace import schema
from memdiag.trace.evidence import (
    BACKWARD,
    FORWARD,
    INITIALISATION,
    OPTIMIZER,
    OTHER,
    OUTSIDE,
    SILENT,
    UNKNOWN,
    StackEvidence,
)
from memdiag.trace.model import DeviceTrace
from memdiag.trace.periods import find_steps
from memdiag.trace.spans import NamedSpans
from memdiag.trace.table import Array, index_type

# If this many passes follow a single optimizer step, the optimizer allocated its state only then and does not delimit
# steps.
PASSES_AFTER_ONLY_STEP = 2


@dataclass(frozen=True)
class EventPhases:
    """Phase (int8) and step (int32) of every event of a device, and their basis ("stacks", "periodicity", …).

    ``thread`` is the number of the thread of each event, or None if all phases follow each other.
    """

    phase: Array
    step: Array
    phase_basis: str
    step_basis: str
    thread: Array | None = None


def mark(device: DeviceTrace, evidence: StackEvidence, spans: NamedSpans) -> EventPhases:
    """Returns phase and step of every event of a device."""
    marker = _markers(device, evidence, spans)
    has_markers = bool(((marker >= 0) & (marker < SILENT)).any())
    if has_markers and bool((evidence.marker[device.events.stack] != SILENT).any()):
        phase = _fill(device, marker)
    else:  # spans are the only evidence (no stacks, or only operator names): the phase between them is unknown
        phase = np.where((marker >= 0) & (marker < SILENT), marker, UNKNOWN).astype(np.int8)
    phase_basis = "none"
    if has_markers:
        by_stack = bool(((marker < SILENT) & (evidence.marker[device.events.stack] == marker)).any())
        by_span = bool((spans.last > spans.first).any())
        phase_basis = "+".join(name for name, used in (("annotations", by_span), ("stacks", by_stack)) if used)
    step, step_basis = _steps(device, marker, spans)
    return EventPhases(phase, step, phase_basis, step_basis)


def _markers(device: DeviceTrace, evidence: StackEvidence, spans: NamedSpans) -> Array:
    """Returns, per event, the phase identified by its stack or a span, else SILENT or OTHER.

    Frees that identify no phase are -1.
    """
    action = device.events.action
    marker = evidence.marker[device.events.stack].copy()
    marker[~_is_request(action) & (marker >= SILENT)] = -1
    # Objects are constructed all the time: a constructor means initialisation only before training.
    training = np.flatnonzero((marker == FORWARD) | (marker == BACKWARD) | (marker == OPTIMIZER))
    if len(training):
        late = marker[training[0] :]
        late[(late == INITIALISATION) & ~evidence.moving[device.events.stack[training[0] :]]] = OTHER
        late[(late == OTHER) & ~_is_request(action[training[0] :])] = -1
    for first, last, phase in zip(spans.first, spans.last, spans.phase, strict=True):
        marker[first:last] = phase
    return marker


def _is_request(action: Array) -> Array:
    """Returns which events are requests of the program (their stack is the call site)."""
    asks = np.zeros(len(schema.ACTIONS), bool)
    asks[[schema.ALLOC, schema.SEGMENT_ALLOC, schema.SEGMENT_MAP, schema.OOM]] = True
    return asks[action]


def _fill(device: DeviceTrace, marker: Array) -> Array:
    """Returns the phase of every event: of the markers, and of the events between them."""
    n = len(marker)
    resolved = np.flatnonzero(marker >= 0)
    kind = marker[resolved]
    is_marker = kind < SILENT
    index = np.arange(len(kind), dtype=index_type(n))
    before, after = np.where(is_marker, index, -1), np.where(is_marker, index, len(kind))[::-1]
    np.maximum.accumulate(before, out=before)
    np.minimum.accumulate(after, out=after)
    edged = np.concatenate((kind, np.array([UNKNOWN], np.int8)))  # index -1 and len(kind): no marker on that side
    between = _between(bool((kind == BACKWARD).any()), starts_empty=device.start["active"] == 0)
    # One small number encodes the neighbours and the kind: three index columns would take 24 bytes per event.
    around = (edged[before] * np.int8(len(schema.PHASES)) + edged[after[::-1]]) * np.int8(2) + (kind != SILENT)
    filled = np.where(is_marker, kind, between.ravel()[around])
    # Every other event belongs to the last of these phases before it.
    phase = np.zeros(n, np.int8)
    phase[resolved] = filled
    last = np.where(marker >= 0, np.arange(n, dtype=index_type(n)), -1)
    np.maximum.accumulate(last, out=last)
    return np.where(last >= 0, phase[last], UNKNOWN).astype(np.int8)


def _between(has_backward: bool, *, starts_empty: bool) -> Array:
    """Returns the phase of events between two markers: int8, [marker before, marker after, 0: no frames, 1: user code].

    UNKNOWN as a marker means the beginning or the end of the trace.
    """
    table = np.full((len(schema.PHASES), len(schema.PHASES), 2), OUTSIDE, np.int8)
    silent, user = table[:, :, 0], table[:, :, 1]
    user[FORWARD, [FORWARD, UNKNOWN]] = FORWARD if has_backward else OUTSIDE
    user[FORWARD, [UNKNOWN, OUTSIDE]] = FORWARD
    user[[UNKNOWN, INITIALISATION, FORWARD, OPTIMIZER, OUTSIDE], BACKWARD] = (
        FORWARD  # a model or loss that is not a Module
    )
    user[BACKWARD, BACKWARD] = BACKWARD
    user[OPTIMIZER, OPTIMIZER] = OPTIMIZER
    user[[INITIALISATION, UNKNOWN], INITIALISATION] = INITIALISATION
    user[INITIALISATION, UNKNOWN] = INITIALISATION
    user[UNKNOWN, FORWARD] = INITIALISATION if starts_empty else OUTSIDE
    silent[:] = user
    silent[BACKWARD, :] = BACKWARD
    silent[[UNKNOWN, FORWARD], OPTIMIZER] = BACKWARD
    silent[UNKNOWN, [BACKWARD, OUTSIDE]] = BACKWARD
    silent[UNKNOWN, FORWARD] = UNKNOWN
    return table


def _steps(device: DeviceTrace, marker: Array, spans: NamedSpans) -> tuple[Array, str]:
    """Returns the step of every event and the basis."""
    if len(spans.step_starts):
        return _number(device.num_events, spans.step_starts), "annotations"
    passes = np.flatnonzero((marker == FORWARD) | (marker == BACKWARD))
    ends, from_spans = _optimizer_ends(marker, spans, passes)
    starts_of_passes = _pass_starts(marker, passes)
    if len(ends) == 1 and not from_spans and (starts_of_passes >= ends[0]).sum() >= PASSES_AFTER_ONLY_STEP:
        ends = ends[:0]
    if len(ends):
        first = _first_of_training(device, marker)
        starts = _next_request(device, marker, ends)
        return _number(device.num_events, np.append(first, starts)), "annotations" if from_spans else "stacks"
    if (marker == BACKWARD).any():
        first = _first_of_training(device, marker)
        return _number(device.num_events, np.append(first, starts_of_passes[1:])), "stacks"
    if len(passes):  # forward only: layers repeat there
        return _number(device.num_events, np.array([_first_of_training(device, marker)])), "stacks"
    found = find_steps(device)
    if len(found):
        return _number(device.num_events, found), "periodicity"
    return np.full(device.num_events, -1, np.int32), "none"


def _number(num_events: int, starts: Array) -> Array:
    """Returns the step of every event, given the events at which steps begin; -1 before the first."""
    begins = np.zeros(num_events + 1, np.int32)
    begins[np.unique(starts)] = 1
    return (np.cumsum(begins[:num_events]) - 1).astype(np.int32)


def _optimizer_ends(marker: Array, spans: NamedSpans, passes: Array) -> tuple[Array, bool]:
    """Returns the events after each optimizer step, and whether spans (rather than stacks) identify them."""
    at = np.flatnonzero(marker == OPTIMIZER)
    from_spans = bool((spans.phase == OPTIMIZER).any())
    if from_spans:
        ends = spans.last[spans.phase == OPTIMIZER]
    else:
        # The last of each run of optimizer events that no forward or backward interrupts.
        pass_number = np.searchsorted(passes, at)
        ends = at[np.append(pass_number[1:] != pass_number[:-1], True)] + 1 if len(at) else at
    # Several optimizers in a row are one step; if no forward or backward is known, any event between them separates
    # them.
    number = np.searchsorted(passes if len(passes) else np.flatnonzero((marker >= 0) & (marker != OPTIMIZER)), ends)
    return (ends[np.append(number[1:] != number[:-1], True)] if len(ends) else ends), from_spans


def _pass_starts(marker: Array, passes: Array) -> Array:
    """Returns the first event of every forward that follows a backward (or begins the trace)."""
    if not len(passes):
        return passes
    kind = marker[passes]
    begins = (kind == FORWARD) & np.append(True, kind[:-1] == BACKWARD)
    found: Array = passes[begins]
    return found


def _first_of_training(device: DeviceTrace, marker: Array) -> int:
    """Returns the event with which the first step begins: after initialisation, including the inputs."""
    training = np.flatnonzero((marker == FORWARD) | (marker == BACKWARD) | (marker == OPTIMIZER))
    if not len(training):  # spans of optimizer steps without any events
        return 0
    initialising = np.flatnonzero(marker[: training[0]] == INITIALISATION)
    if len(initialising):
        return int(initialising[-1]) + 1
    return int(training[0]) if device.start["active"] == 0 else 0


def _next_request(device: DeviceTrace, marker: Array, ends: Array) -> Array:
    """Returns, for each event, the next one (inclusive) that is an allocation or belongs to a forward or backward.

    The value is num_events if there is none.
    """
    begins = (device.events.action == schema.ALLOC) | (marker == FORWARD) | (marker == BACKWARD)
    where = np.append(np.flatnonzero(begins & (marker != OPTIMIZER)), device.num_events)
    found: Array = where[np.searchsorted(where, ends)]
    return found
