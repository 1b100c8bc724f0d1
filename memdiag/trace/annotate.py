"""Fills in what the file does not say outright: phase and step of every event, category and lifetime of every tensor.

``Trace.bases`` tells for each of "phase", "step", "category" and "lifetime" on what evidence it rests: "marks" (the file says it),
"annotations" (named spans), "stacks", both of them ("annotations+stacks"), "periodicity" (sizes that repeat) or "none".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memdiag.trace.categories import infer
from memdiag.trace.evidence import Evidence, read_stacks
from memdiag.trace.lifetimes import classify, measure
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.phases import Marks, mark
from memdiag.trace.recorded import Recorded, label
from memdiag.trace.spans import lay_out

BASES = ("phase", "step", "category", "lifetime")


def annotate(trace: Trace, recorded: Recorded | None = None) -> Trace:
    """Returns ``trace`` with phases, steps, categories, lifetimes and names; a trace that has them is returned as it is.

    What a recorder marked counts before what can be inferred.
    """
    if all(name in trace.bases for name in BASES):
        return trace
    evidence = read_stacks(trace.stacks)
    if recorded is not None:
        trace = replace(trace, devices=tuple(_seen(device, recorded) for device in trace.devices))
    marks = [(recorded and recorded.phases(device)) or mark(device, evidence, lay_out(trace, device)) for device in trace.devices]
    devices = tuple(_annotated(device, found, evidence) for device, found in zip(trace.devices, marks, strict=True))
    if recorded is not None:
        strings, devices = _named(trace, devices, recorded)
        trace = replace(trace, strings=strings)
    phase, step = _strongest([found.phase_basis for found in marks]), _strongest([found.step_basis for found in marks])
    said = any(bool(device.tensors.category.any()) for device in trace.devices)
    stacks_tell = evidence.found and any(bool(device.tensors.category.any()) for device in devices)
    bases = {
        "phase": phase,
        "step": step,
        "category": "marks" if said else phase if phase != "none" else "stacks" if stacks_tell else "none",
        "lifetime": phase if phase != "none" else step,
    }
    return replace(trace, devices=devices, bases={**trace.bases, **bases})


def _seen(device: DeviceTrace, recorded: Recorded) -> DeviceTrace:
    """Returns a device with the categories of the tensors that a recorder saw."""
    category, _ = recorded.seen(device)
    told = device.tensors.category
    return replace(device, tensors=device.tensors.replace(category=np.where(category > 0, category, told)))


def _named(trace: Trace, devices: tuple[DeviceTrace, ...], recorded: Recorded) -> tuple[tuple[str, ...], tuple[DeviceTrace, ...]]:
    """Returns all strings of a trace and its devices with names: those seen, else the module in which a tensor was made."""
    strings = list(trace.strings)
    numbers: dict[str, int] = {}

    def number(text: str) -> int:
        if text not in numbers:
            numbers[text] = len(strings)
            strings.append(text)
        return numbers[text]

    named = []
    for device in devices:
        tensors = device.tensors
        _, seen = recorded.seen(device)
        module = np.append(recorded.module_at(device), -1)[tensors.alloc_at]
        name = np.array([number(recorded.names[row]) if row >= 0 else -1 for row in seen.tolist()], np.int32)
        made: dict[tuple[int, int], int] = {}
        for row in np.flatnonzero((seen < 0) & (module >= 0) & (tensors.alloc_at >= 0)).tolist():
            key = (int(module[row]), int(tensors.stack[row]))
            if key not in made:
                made[key] = number(label(recorded.names[key[0]], trace.stacks, key[1]))
            name[row] = made[key]
        named.append(replace(device, tensors=tensors.replace(name=name)))
    return tuple(strings), tuple(named)


def _annotated(device: DeviceTrace, marks: Marks, evidence: Evidence) -> DeviceTrace:
    lives = measure(device, marks, evidence)
    category = infer(device, lives, evidence)
    tensors = device.tensors.replace(
        category=category,
        lifetime=classify(device, lives, category),
        phase_alloc=lives.phase_alloc,
        phase_free=lives.phase_free,
        step_alloc=lives.step_alloc,
        step_free=lives.step_free,
    )
    return replace(device, events=device.events.replace(phase=marks.phase, step=marks.step), tensors=tensors)


def _strongest(bases: Sequence[str]) -> str:
    order = ("marks", "annotations+stacks", "annotations", "stacks", "periodicity")
    return next((basis for basis in order if basis in bases), "none")
