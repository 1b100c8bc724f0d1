"""Functions whose intermediate results are far larger than what they get and return: the differences of all pairs.

Trace entries have no operators and shapes. So the tensors must be many times larger than all tensors that the program
had before, except its model and optimizer, and soon afterwards the same function must allocate a much smaller one: a
sum over the differences, or the values that attention weights have weighted. Layers and losses of PyTorch do not count,
nor do tensors that outlive a step, such as data and caches. For attention weights, MD131 has another remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from memdiag.analyzers.attention import find_weights
from memdiag.analyzers.support.allocator_settings import AllocatorSettings
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.analyzers.support.places import moment_name, when
from memdiag.analyzers.support.sites import by_place, first_finding
from memdiag.analyzers.support.without import peak_without, saving_without
from memdiag.results.finding import Evidence, Finding, Fix
from memdiag.text import phrase
from memdiag.trace.model import Trace
from memdiag.trace.moments import has_history
from memdiag.trace.schema import CATEGORIES, LIFETIMES, OOM, PHASES
from memdiag.trace.table import Array
from memdiag.units import MIB, format_bytes

CODES: dict[str, str] = {"MD138": "a function makes results far larger than its inputs"}

RATIO = 8  # to the largest tensor that the program had before
PARAMETER_RATIO = 4  # to the largest parameter: larger than its conversion from 8 to 32 bits
SOON = 8  # tensors of the function, until it allocates a smaller one
SHARE, WARNING_SHARE = 0.25, 0.5  # of live bytes
FLOOR = 256 * MIB
NUM_PLACES = 3

_STATE = [CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state", "workspace", "collective")]
_PARAMETER = CATEGORIES.index("parameter")
_BRIEF = [LIFETIMES.index(name) for name in ("forward_to_backward", "within_step", "within_phase", "temporary")]
_BACKWARD, _OPTIMIZER = PHASES.index("backward"), PHASES.index("optimizer")
_NONE, _CALLS = -1, -2  # of a frame: of PyTorch or compiled; it only calls operators
_OPERATORS = ("/torch/functional.py", "/torch/_tensor.py")  # of PyTorch: they only call operators


@dataclass(frozen=True)
class LargeResults:
    """Large results of one function.

    Attributes:
        every: All of them in the trace, and tensors of the same size in backward.
        stack: Stack of a largest one.
        largest_bytes: Bytes of that one.
        before_bytes: Bytes of the largest tensor that the program had before, except its model and optimizer.
    """

    every: Array
    stack: int
    largest_bytes: int
    before_bytes: int


def analyze(trace: Trace, context: Context) -> Iterable[Finding]:
    """Yields finding MD138 of every device."""
    for view in context.views(trace):
        if has_history(view.device):
            yield from first_finding(view, _found)


def find_large_results(view: DeviceView) -> LargeResults | None:
    """Returns the large results that are live at the moment of a view, or None."""
    tensors = view.device.tensors
    function = np.append(_functions(view), -1)
    of_tensor, size = function[tensors.stack], tensors.requested_bytes
    counts = (of_tensor >= 0) & (tensors.alloc_at >= 0) & ~np.isin(tensors.category, _STATE)
    counts &= tensors.phase_alloc != _OPTIMIZER
    for rows in find_weights(view):
        counts[rows] = False
    mine = view.live[counts[view.live]]
    if not len(mine):
        return None
    top = mine[np.argmax(size[mine])]
    largest, stack = int(size[top]), int(tensors.stack[top])
    own = np.flatnonzero(counts & (of_tensor == function[stack]))
    large = own[2 * size[own] > largest]
    first = int(tensors.alloc_at[np.intersect1d(large, mine)].min())
    is_same = (tensors.phase_alloc == _BACKWARD) & (of_tensor < 0) & np.isin(size, np.unique(size[large]))
    others = view.live[~np.isin(tensors.category[view.live], _STATE) & ~is_same[view.live]]
    others = np.setdiff1d(others, large)
    before = others[tensors.alloc_at[others] < first]
    outside = others[(of_tensor[others] != function[stack]) & (tensors.phase_alloc[others] != _BACKWARD)]
    parameters = view.live[tensors.category[view.live] == _PARAMETER]
    input_bytes, outside_bytes, parameter_bytes = (
        int(size[rows].max(initial=0)) for rows in (before, outside, parameters)
    )
    if not input_bytes or largest < max(RATIO * max(input_bytes, outside_bytes), PARAMETER_RATIO * parameter_bytes + 1):
        return None
    ended = large[np.isin(tensors.lifetime[large], _BRIEF)]
    if not len(ended) or not _are_reduced(view, own, ended, largest):
        return None
    return LargeResults(np.union1d(large, np.flatnonzero(is_same)), stack, largest, input_bytes)


def _functions(view: DeviceView) -> Array:
    """Returns, per stack, a number for the function that calls the operator; -1 for layers, losses and backward."""
    stacks = view.trace.stacks
    numbers: dict[tuple[str, str], int] = {}
    of_frame = np.full(len(stacks.frames), _NONE, np.int64)
    for number, frame in enumerate(stacks.frames):
        if frame.is_compiled:
            continue
        if not frame.is_python or frame.is_machinery or frame.filename.endswith(_OPERATORS):
            of_frame[number] = _CALLS
        elif not frame.is_pytorch:
            of_frame[number] = numbers.setdefault((frame.filename, frame.name), len(numbers))
    found = np.full(len(stacks), _NONE, np.int64)
    for number, (begin, end) in enumerate(pairwise(stacks.offsets.tolist())):
        functions = of_frame[stacks.frame_ids[begin:end]]
        functions = functions[functions != _CALLS]
        if len(functions):
            found[number] = functions[0]
    if len(stacks.own):  # in backward, the frames of the forward operation do not count
        found[-len(stacks.own) :] = np.append(found[: -len(stacks.own)], _NONE)[stacks.own]
    return found


def _are_reduced(view: DeviceView, own: Array, large: Array, largest: int) -> bool:
    """Returns whether a function soon allocates a much smaller tensor while most of its large results exist."""
    tensors = view.device.tensors
    born = np.sort(tensors.alloc_at[own])
    small = np.sort(tensors.alloc_at[own[2 * tensors.requested_bytes[own] <= largest]])
    if not len(small):
        return False
    made = tensors.alloc_at[large]
    then = np.append(small, view.device.num_events)[np.searchsorted(small, made)]
    num_between = np.searchsorted(born, then) - np.searchsorted(born, made)
    is_reduced = (then < tensors.free_requested_at[large]) & (num_between <= SOON)
    return bool(2 * np.count_nonzero(is_reduced) >= len(large))


def _found(view: DeviceView) -> Iterator[Finding]:
    """Yields MD138."""
    found = find_large_results(view)
    if found is None:
        return
    device, tensors = view.device, view.device.tensors
    rows = np.intersect1d(found.every, view.live)
    total, held = (int(tensors.block_bytes[each].sum()) for each in (view.live, rows))
    if held < max(SHARE * total, FLOOR):
        return
    ran_out = bool((device.events.action == OOM).any())
    keeps = bool((tensors.lifetime[found.every] == LIFETIMES.index("forward_to_backward")).any())
    yield Finding(
        "MD138",
        phrase(
            "large_results.title",
            place=view.label(found.stack),
            size=format_bytes(found.largest_bytes),
            ratio=str(found.largest_bytes // found.before_bytes),
            bytes=format_bytes(held),
            share=f"{held / total:.0%}",
            when=when(view),
        ),
        ("critical" if ran_out else "warning") if held >= WARNING_SHARE * total else "info",
        device.device,
        (
            Evidence(phrase("large_results.largest"), found.largest_bytes, "bytes"),
            Evidence(phrase("large_results.before"), found.before_bytes, "bytes"),
            Evidence(phrase("large_results.held"), held, "bytes", moment_name(device, view.at)),
            *(
                Evidence(phrase("large_results.site"), each.bytes, "bytes", each.label)
                for each in by_place(view, rows)[:NUM_PLACES]
            ),
            peak_without(device, found.every),
        ),
        (
            Fix(
                phrase("large_results.parts", place=view.label(found.stack)),
                "code",
                "out += [checkpoint(f, x[i:j], y, use_reentrant=False)]"
                if keeps
                else "out += [f(x[i:j], y)]  # i:j = 0:256, 256:512, …",
                phrase("large_results.parts.when"),
                phrase("large_results.parts.caveat.backward" if keeps else "large_results.parts.caveat"),
            ),
            Fix(
                phrase("large_results.cdist"),
                "code",
                "torch.cdist(x, y)  # not: (x[:, None] - y).pow(2).sum(-1)",
                phrase("large_results.cdist.when"),
            ),
            *(
                replace(fix, applicability=phrase("large_results.attention.when"), caveat=phrase("attention.caveat"))
                for fix in AllocatorSettings.of(view.trace).offers("attention")
            ),
        ),
        saving_without(device, found.every),
        held,
    )
