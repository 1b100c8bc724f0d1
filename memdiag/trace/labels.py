"""Notes of the program about its tensors, and the forward operations of tensors that backward allocated.

Two notes exist in PyTorch: ``_set_memory_metadata`` before an allocation, and ``_annotate_tensor`` after it. With
anomaly mode, an entry of backward names the forward operation that it runs for (``forward_frames``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array

_BETWEEN = "; "


def with_labels(trace: Trace) -> Trace:
    """Returns a trace whose tensors have the notes of the program as labels."""
    strings = list(trace.strings)
    numbers: dict[str, int] = {}
    devices = []
    for device in trace.devices:
        label = _first_notes(trace, device)
        for tensor, notes in _later_notes(device).items():
            texts = dict.fromkeys(strings[note] for note in (int(label[tensor]), *notes) if note >= 0)
            text = _BETWEEN.join(texts)
            if text not in numbers:
                numbers[text] = len(strings)
                strings.append(text)
            label[tensor] = numbers[text]
        has_labels = bool((label >= 0).any())
        devices.append(replace(device, tensors=device.tensors.replace(label=label)) if has_labels else device)
    return replace(trace, devices=tuple(devices), strings=tuple(strings))


def notes_of(trace: Trace, device: DeviceTrace) -> Array:
    """Returns the text that the program, not a recorder, set for each event (index into strings; -1: none)."""
    said = device.events.user_metadata
    threads = trace.recorded.threads if trace.recorded is not None else {}
    return np.where(np.isin(said, list(threads)), -1, said) if threads else said


def _first_notes(trace: Trace, device: DeviceTrace) -> Array:
    """Returns the text that was set when each tensor was allocated (int32, index into strings)."""
    said, born = notes_of(trace, device), device.tensors.alloc_at
    if not len(said):
        return np.full(len(born), -1, np.int32)
    label: Array = np.where(born >= 0, said[np.maximum(born, 0)], -1).astype(np.int32)
    return label


def _later_notes(device: DeviceTrace) -> dict[int, list[int]]:
    """Returns the texts of annotations by tensor, in order: the tensor live at the address of the annotation."""
    events, tensors = device.events, device.tensors
    at = np.flatnonzero((events.action == schema.ANNOTATE) & (events.user_metadata >= 0))
    if not len(at) or not len(tensors):
        return {}
    # The last tensor at the same address that was allocated before the annotation.
    order = np.lexsort((tensors.alloc_at, tensors.addr))
    found: dict[int, list[int]] = {}
    addr, born = tensors.addr[order], tensors.alloc_at[order]
    first = np.searchsorted(addr, events.addr[at], "left")
    end = np.searchsorted(addr, events.addr[at], "right")
    for event, low, high in zip(at.tolist(), first.tolist(), end.tolist(), strict=True):
        row = low + int(np.searchsorted(born[low:high], event)) - 1
        if row >= low and tensors.free_completed_at[order[row]] > event:
            found.setdefault(int(order[row]), []).append(int(events.user_metadata[event]))
    return found


def with_forward_lines(trace: Trace) -> Trace:
    """Returns a trace in which tensors of backward without Python frames have the stack of their forward operation."""
    chosen = [_of_backward(device, trace.stacks) for device in trace.devices]
    keys = np.unique(np.concatenate([key for _, key in chosen]) if chosen else np.empty(0, np.int64))
    if not len(keys):
        return trace
    stacks = trace.stacks.with_forward(((keys >> 32) - 1).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32))
    devices = []
    for device, (rows, key) in zip(trace.devices, chosen, strict=True):
        stack = device.tensors.stack.copy()
        stack[rows] = len(trace.stacks) + np.searchsorted(keys, key)
        devices.append(replace(device, tensors=device.tensors.replace(stack=stack)) if len(rows) else device)
    return replace(trace, devices=tuple(devices), stacks=stacks)


def _of_backward(device: DeviceTrace, stacks: Stacks) -> tuple[Array, Array]:
    """Returns the tensors to name after a forward operation, and own stack + 1 and forward stack in one number."""
    events, blocks, tensors = device.events, device.blocks, device.tensors
    born, own = tensors.alloc_at, tensors.stack
    if not (events.forward_stack >= 0).any() and not (blocks.forward_stack >= 0).any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    forward = np.full(len(tensors), -1, np.int64)
    made = np.flatnonzero(born >= 0)
    forward[made] = events.forward_stack[born[made]]
    if len(blocks):  # a tensor from before the trace that is still live
        old = np.flatnonzero((born < 0) & (tensors.free_completed_at >= device.num_events))
        order = np.argsort(blocks.address, kind="stable")
        place = order[np.minimum(np.searchsorted(blocks.address[order], tensors.addr[old]), len(order) - 1)]
        same = blocks.address[place] == tensors.addr[old]
        forward[old[same]] = blocks.forward_stack[place[same]]
    has_python = np.append(stacks.with_frame(np.array([frame.is_python for frame in stacks.frames], bool)), False)
    rows = np.flatnonzero((forward >= 0) & ~has_python[own])
    return rows, (own[rows].astype(np.int64) + 1) << 32 | forward[rows]
