"""Infers phases, steps, categories and lifetimes that the file does not record.

``Trace.bases`` gives the evidence for each of "phase", "step", "category" and "lifetime": "marks" (recorded in the
file), "annotations" (named spans), "stacks", both of these ("annotations+stacks"), "periodicity" (sizes that repeat) or
"none". The basis of "lifetime" ends in "+earlier_steps" if lifetimes of tensors still live at the end were inferred
from the same call site in earlier steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from memdiag.results.report import EARLIER_STEPS
from memdiag.trace.categories import infer
from memdiag.trace.earlier_steps import like_earlier_steps
from memdiag.trace.evidence import SILENT, StackEvidence, read_stacks
from memdiag.trace.labels import with_forward_lines, with_labels
from memdiag.trace.lifetimes import classify, measure
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.names import name_tensors
from memdiag.trace.phases import EventPhases, mark
from memdiag.trace.recorded import phases_of, sampled_at, seen_in
from memdiag.trace.recording import ProcessMarks
from memdiag.trace.spans import lay_out
from memdiag.trace.table import Array
from memdiag.trace.threads import threads_in

BASES = ("phase", "step", "category", "lifetime")


def annotate(trace: Trace, recorded: ProcessMarks | None = None) -> Trace:
    """Returns ``trace`` with phases, steps, categories, lifetimes and names.

    A trace that has them is returned unchanged. Marks of a recorder take precedence over inference. Tensors also get
    the notes of the program as labels, and those of backward the forward operation if the file names it.
    """
    if all(name in trace.bases for name in BASES):
        return trace
    evidence = read_stacks(trace.stacks)
    recorded = recorded and replace(recorded, threads=threads_in(trace.strings))
    seen = [seen_in(recorded, device) for device in trace.devices] if recorded is not None else []
    if recorded is not None:
        trace = replace(
            trace, devices=tuple(_with_recorded(recorded, *pair) for pair in zip(trace.devices, seen, strict=True))
        )
    marks = [
        (recorded and phases_of(recorded, device)) or mark(device, evidence, lay_out(trace, device))
        for device in trace.devices
    ]
    scratch = recorded.ended.scratch if recorded is not None else None
    planned = {size for sizes in scratch.workspaces for size in sizes} if scratch is not None else set()
    is_cuda = trace.backend == "cuda"
    devices = tuple(
        _annotated(device, found, evidence, is_cuda=is_cuda, planned=planned)
        for device, found in zip(trace.devices, marks, strict=True)
    )
    if recorded is not None:
        trace = replace(trace, devices=devices)
        strings, devices = name_tensors(trace, recorded, [names for _, names in seen])
        trace = replace(trace, strings=strings)
    phase, step = _strongest([found.phase_basis for found in marks]), _strongest([found.step_basis for found in marks])
    said = any(bool(device.tensors.category.any()) for device in trace.devices)
    stacks_tell = evidence.found and any(bool(device.tensors.category.any()) for device in devices)
    is_inferred = any(bool(device.tensors.lifetime_inferred.any()) for device in devices)
    bases = {
        "phase": phase,
        "step": step,
        "category": "marks" if said else phase if phase != "none" else "stacks" if stacks_tell else "none",
        "lifetime": (phase if phase != "none" else step) + EARLIER_STEPS * is_inferred,
    }
    found = replace(trace, devices=devices, bases={**trace.bases, **bases}, recorded=recorded)
    return with_labels(with_forward_lines(found))


def _with_recorded(recorded: ProcessMarks, device: DeviceTrace, seen: tuple[Array, Array]) -> DeviceTrace:
    """Returns a device with the categories of the tensors that a recorder saw, and its samples placed."""
    category, _ = seen
    inferred = device.tensors.category
    return replace(
        device,
        tensors=device.tensors.replace(category=np.where(category > 0, category, inferred)),
        samples=device.samples.replace(at_event=sampled_at(recorded, device)),
    )


def _annotated(
    device: DeviceTrace, marks: EventPhases, evidence: StackEvidence, *, is_cuda: bool, planned: Collection[int]
) -> DeviceTrace:
    lives = measure(device, marks, evidence)
    category = infer(device, lives, evidence, is_cuda=is_cuda, planned=planned)
    observed = classify(device, lives, category)
    lifetime = like_earlier_steps(device, lives, observed, evidence.marker[device.tensors.stack] == SILENT)
    tensors = device.tensors.replace(
        category=category,
        lifetime=lifetime,
        lifetime_inferred=lifetime != observed,
        phase_alloc=lives.phase_alloc,
        phase_free=lives.phase_free,
        step_alloc=lives.step_alloc,
        step_free=lives.step_free,
    )
    return replace(device, events=device.events.replace(phase=marks.phase, step=marks.step), tensors=tensors)


def _strongest(bases: Sequence[str]) -> str:
    order = ("marks", "annotations+stacks", "annotations", "stacks", "periodicity")
    return next((basis for basis in order if basis in bases), "none")
