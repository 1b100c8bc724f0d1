"""Chains of element-wise operators in one module.

Each operator allocates a tensor as large as its input, and frees the input.

In a trace this is a run of allocations of one size in one ``forward``, where each tensor is freed soon after the next
one is allocated. Tensors that autograd keeps for backward do not count: they are activations (see ``kept_chains``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name
from memdiag.results.finding import Evidence, Finding, Fix, Saving
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.schema import PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD123": "each operator of a chain allocates a temporary tensor"}

MIN_LINKS = 4  # short-lived tensors of a run
SOON = 3  # a link is freed before this many further links are allocated
FLOOR = 32 * MIB  # live of one run at a time
SHARE = 0.02  # fraction of allocated memory at the peak
WARNING_SHARE = 0.1
NUM_PLACES = 3
_PRODUCTS = tuple(f"torch/nn/modules/{name}.py" for name in ("linear", "conv", "rnn", "sparse", "pooling"))


@dataclass(frozen=True)
class Chains:
    """Runs, one entry each.

    Attributes:
        rows: Per run: its short-lived tensors (rows of Tensors), in order of birth.
        stack: Stack of the first of them.
        peak_bytes, peak_at: Peak of their live bytes, and the event that reaches it.
    """

    rows: list[Array]
    stack: Array
    peak_bytes: Array
    peak_at: Array


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD123 of every device."""
    for view in context.views(trace):
        yield from _chained(view)


def find_chains(view: DeviceView) -> Chains:
    """Returns every run whose links have a relevant number of bytes."""
    tensors = view.device.tensors
    order = np.flatnonzero(tensors.alloc_at >= 0)
    order = order[np.argsort(tensors.alloc_at[order], kind="stable")]
    size = tensors.requested_bytes[order]
    module = np.append(modules_of(view, np.unique(tensors.stack[order[size >= FLOOR // 2]])), -1)[tensors.stack[order]]
    # Tensors of another size between them (a mask, a scalar) do not end a run: of each module, those of one size follow
    # each other.
    mine = np.flatnonzero((module >= 0) & (size >= FLOOR // 2))
    order, module, size, position = order[mine], module[mine], size[mine], mine
    same = (np.diff(module) == 0) & (np.diff(size) == 0) & (np.diff(position) <= SOON)
    made, freed, never = tensors.alloc_at[order], tensors.free_requested_at[order], view.device.num_events
    run = np.cumsum(np.concatenate(([0], ~same)))[: len(order)]
    until = np.append(made, never)[np.minimum(np.arange(len(order)) + 1 + SOON, len(order))]
    then = np.append(made[1:], never)[: len(order)]
    link = np.append(same, False)[: len(order)] & (freed > then) & (freed < until)
    link &= np.bincount(run[link], minlength=len(order) + 1)[run] >= MIN_LINKS
    rows, of = order[link], run[link]
    held = tensors.block_bytes[rows]
    if not len(rows):
        return Chains([], rows, rows, rows)
    # Each run frees all its tensors, so in a running sum over the runs each one begins at zero.
    change, when = np.concatenate((held, -held)), np.concatenate((made[link], freed[link]))
    by = np.lexsort((change, when, np.concatenate((of, of))))
    total, when = np.cumsum(change[by]), when[by]
    first = np.flatnonzero(np.append(True, np.diff(of) != 0))
    most = np.maximum.reduceat(total, 2 * first)
    runs = np.split(rows, first[1:])
    worth = np.flatnonzero(most >= FLOOR)
    ends = np.append(2 * first[1:], len(total))
    at = [
        int(when[begin + np.argmax(total[begin:end])]) for begin, end in zip(2 * first[worth], ends[worth], strict=True)
    ]
    return Chains([runs[i] for i in worth], tensors.stack[rows[first[worth]]], most[worth], np.array(at, np.int64))


def made_in_forward(view: DeviceView, smallest: int) -> tuple[Array, Array]:
    """Returns the tensors (rows of Tensors) of ``smallest`` bytes or more that forward passes allocated.

    They are in order of allocation; the second array has the number of the module of each (``modules_of``).
    """
    tensors = view.device.tensors
    is_forward = tensors.phase_alloc == PHASES.index("forward")
    rows = np.flatnonzero((tensors.alloc_at >= 0) & is_forward & (tensors.requested_bytes >= smallest))
    rows = rows[np.argsort(tensors.alloc_at[rows], kind="stable")]
    return rows, np.append(modules_of(view, np.unique(tensors.stack[rows])), -1)[tensors.stack[rows]]


def modules_of(view: DeviceView, wanted: Array) -> Array:
    """Returns, per stack, a number for its innermost ``forward`` and the frames that called it.

    It is -1 if missing or not wanted, for code that torch.compile has fused, and for layers that are no element-wise
    operators: those of an nn.Sequential have the same callers.

    The line of ``forward`` itself does not count, because the operators of a chain are on different lines.
    """
    stacks = view.trace.stacks
    numbers: dict[tuple[int, ...], int] = {}
    found = np.full(len(stacks), -1, np.int64)
    is_forward = np.array([frame.name == "forward" and frame.is_python for frame in stacks.frames], bool)
    if not is_forward.any():
        return found
    is_compiled = np.array([frame.is_compiled for frame in stacks.frames], bool)
    files: dict[str, int] = {}
    file = np.array([files.setdefault(frame.filename, len(files)) for frame in stacks.frames], np.int64)
    for number in wanted[wanted >= 0].tolist():
        frames = stacks.frame_ids[stacks.offsets[number] : stacks.offsets[number + 1]]
        at = np.flatnonzero(is_forward[frames])
        if len(at) and not is_compiled[frames].any():
            inner = int(at[0])
            if stacks.frames[int(frames[inner])].filename.replace("\\", "/").endswith(_PRODUCTS):
                continue
            key = (int(file[frames[inner]]), *frames[inner + 1 :].tolist())
            found[number] = numbers.setdefault(key, len(numbers))
    return found


def _chained(view: DeviceView) -> Iterator[Finding]:
    """Yields MD123."""
    found, device = find_chains(view), view.device
    allocated = max(int(device.usage.allocated.max(initial=0)), device.start["allocated"])
    if not found.rows or int(found.peak_bytes.max()) < SHARE * allocated:
        return
    worst = int(np.argmax(found.peak_bytes))
    size = int(device.tensors.requested_bytes[found.rows[worst][0]])
    largest = int(found.peak_bytes[worst])
    live = np.intersect1d(np.concatenate(found.rows), view.live)
    held = device.tensors.block_bytes[live]
    at_peak = int(held.sum())
    # A fused chain still has its result, so one of the live tensors remains.
    less = at_peak - int(held.max(initial=0))
    is_highest = device.usage_at(view.at)["reserved"] == max(int(device.usage.reserved.max()), device.start["reserved"])
    yield Finding(
        "MD123",
        phrase(
            "intermediates.title", count=len(found.rows[worst]), size=format_bytes(size), bytes=format_bytes(largest)
        ),
        "warning" if less >= WARNING_SHARE * allocated else "info",
        device.device,
        (
            Evidence(phrase("intermediates.largest"), largest, "bytes", moment_name(device, int(found.peak_at[worst]))),
            Evidence(phrase("intermediates.temporaries"), len(found.rows[worst]), "tensors"),
            Evidence(phrase("intermediates.chains"), len(found.rows), "chains"),
            Evidence(phrase("intermediates.live"), at_peak, "bytes", moment_name(device, view.at)),
            *_places(view, found),
        ),
        (
            Fix(
                phrase("intermediates.fix"),
                "code",
                "",
                phrase("remedies.every"),
                phrase("intermediates.fix.caveat"),
            ),
        ),
        saving=Saving(0, less, less, "estimated") if less and is_highest else None,
        weight_bytes=max(less, largest // 2),
    )


def _places(view: DeviceView, found: Chains) -> Iterator[Evidence]:
    """Yields the call sites where the largest chains begin."""
    most: dict[str, tuple[int, int]] = {}
    for stack, size in zip(found.stack.tolist(), found.peak_bytes.tolist(), strict=True):
        label = view.label(stack)
        highest, count = most.get(label, (0, 0))
        most[label] = (max(highest, size), count + 1)
    for label in sorted(most, key=lambda name: (-most[name][0], name))[:NUM_PLACES]:
        highest, count = most[label]
        yield Evidence(phrase("intermediates.site", count=count), highest, "bytes", label)
