"""When the tensors of a part of the model are made and freed if backward recomputes this part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit, Made, Repeat
from memdiag.offload.passes import BACKWARD, FORWARD
from memdiag.trace.schema import ALLOC, FREE_REQUESTED
from memdiag.trace.table import Array

_NEAR = 16  # events
_SPEED = 100_000  # bytes that forward allocates per microsecond: about those of a transformer on a card of 2022


@dataclass(frozen=True)
class Block:
    """A part of the model.

    Attributes:
        path: Its path in the model.
        edit: The change if its activations are recomputed.
        saved_bytes: Bytes that it no longer keeps for backward, in the largest pass.
        cost: Bytes that are allocated again in all passes.
    """

    path: str
    edit: Edit
    saved_bytes: int
    cost: int


def recompute_us(num_bytes: int, num_steps: int) -> int:
    """Returns the time in microseconds that each step takes to allocate some bytes again in forward; estimated.

    Args:
        num_bytes: Bytes that all steps together allocate again.
        num_steps: Number of steps.
    """
    return max(num_bytes // (_SPEED * max(num_steps, 1)), 1)


def training_passes(case: FixCase) -> Iterator[tuple[int, int, int, int]]:
    """Yields begin and end of each forward pass, and of the backward pass that follows it."""
    passes = case.passes
    for i in np.flatnonzero((passes.phase[:-1] == FORWARD) & (passes.phase[1:] == BACKWARD)).tolist():
        yield int(passes.begin[i]), int(passes.end[i]), int(passes.begin[i + 1]), int(passes.end[i + 1])


def block_of(case: FixCase, path: str) -> Block | None:
    """Returns a part of the model, or None if it keeps nothing for backward.

    Args:
        case: The recording.
        path: Path of the part in the model.
    """
    if path not in case.modules.spans:
        return None
    tensors = case.device.tensors
    repeats: list[Repeat] = []
    freed: dict[int, int] = {}
    held: dict[int, int] = {}
    made_again: list[Made] = []
    saved_bytes = cost = 0
    latest = np.empty(0, np.int64)
    allocs = np.flatnonzero(case.device.events.action == ALLOC)
    for begin, end, backward, backward_end in calls_of(case, path):
        made = (tensors.alloc_at >= begin) & (tensors.alloc_at < end)
        kept = (tensors.free_requested_at >= backward) & (tensors.free_requested_at < backward_end)
        later = np.flatnonzero(kept & (tensors.alloc_at >= end) & (tensors.alloc_at < backward))
        mine = np.flatnonzero(kept & made)
        reached = int(tensors.free_requested_at[later].max(initial=backward))
        # Later parts save only the output of the block, which remains. Backward frees it before the block's other
        # tensors: with those of the later part, or after the block's last operator.
        inner = mine[tensors.free_requested_at[mine] > reached]
        own, output, result = -1, -1, output_of(case, begin, end)
        # the output of a linear layer, for example, may be freed as soon as a residual has been added
        is_kept = result < 0 or result in mine
        if len(mine) and len(inner) == len(mine) and is_kept:
            output = int(mine[np.argmin(tensors.free_requested_at[mine])])
            own = _own_gradient(case, output, reached) if path in case.saves_result else -1
            reached = int(tensors.free_requested_at[output])
            inner = mine[tensors.free_requested_at[mine] > reached]
        if not len(inner):
            continue
        again = {row: _freed_earlier(case, row) for row in inner.tolist()}
        if own >= 0:  # the block uses a copy of its output, and the later part the output itself
            again[output], freed[output] = int(tensors.free_requested_at[output]), own
        casts = case.casts.made_in(begin, end)
        latest = casts if len(casts) else case.casts.still_cached(case.device, latest, begin)
        # copies by autocast, and workspaces of libraries, are still live
        lasting = np.flatnonzero(made & (tensors.free_requested_at >= backward_end))
        cached = frozenset(lasting[lasting != result].tolist())
        # frees that follow belong to the operator before; the next one that allocates needs the block
        following = own
        if own < 0:
            number = min(int(np.searchsorted(allocs, reached)), len(allocs) - 1)
            number += case.casts.is_used and _is_cast(case, int(allocs[number]), result, end)
            following = int(allocs[min(number, len(allocs) - 1)])
        repeats.append(
            Repeat(
                begin,
                end,
                following,
                again,
                cached,
                _made_with(case, max(again, key=lambda row: tensors.alloc_at[row])),
            )
        )
        if not len(casts):  # autocast still has the copies of an earlier call, but recomputing makes its own
            until = max(again.values())
            made_again += [Made(following, until, int(tensors.requested_bytes[row]), row) for row in latest.tolist()]
        freed |= dict(zip(inner.tolist(), np.minimum(case.released[inner], end).tolist(), strict=True))
        released = case.casts.freed_without_autograd(case.device, casts, backward)
        freed |= dict.fromkeys(np.intersect1d(inner, casts).tolist(), released)
        for row in _inputs(case, path, begin):
            if tensors.free_requested_at[row] < backward:
                held[row] = max(again.values())
        saved_bytes = max(saved_bytes, int(tensors.block_bytes[inner].sum()))
        cost += int(tensors.block_bytes[made].sum())
    edit = Edit(freed=freed, repeats=tuple(repeats), held=held, made=tuple(made_again))
    return Block(path, edit, saved_bytes, cost) if repeats else None


def _inputs(case: FixCase, path: str, begin: int) -> Iterator[int]:
    """Yields the tensors of forward that a call gets, as rows in Tensors: the latest ones of their sizes.

    PyTorch keeps the arguments of a recomputed block until its backward, even if autograd did not save them.
    """
    tensors = case.device.tensors
    rows = np.flatnonzero((tensors.alloc_at < begin) & (tensors.free_requested_at >= begin))
    for size in case.inputs.get(path, ()):
        same = rows[tensors.requested_bytes[rows] == size]
        latest = int(same[np.argmax(tensors.alloc_at[same])]) if len(same) else -1
        if latest >= 0 and tensors.phase_alloc[latest] == FORWARD:  # the program itself holds a batch
            yield latest


def called_in(case: FixCase, path: str) -> list[str]:
    """Returns a module, or the outermost modules in it that are called if it is not called itself."""
    if path in case.called:
        return [path]
    inside = sorted(each for each in case.called if each.startswith(f"{path}."))
    return [each for each in inside if not any(each.startswith(f"{other}.") for other in inside)] or [path]


def output_of(case: FixCase, begin: int, end: int) -> int:
    """Returns the tensor that a call returns, as a row in Tensors, or -1."""
    tensors = case.device.tensors
    made = (tensors.alloc_at >= begin) & (tensors.alloc_at < end) & (tensors.free_requested_at >= end)
    return case.outputs.among(np.setdiff1d(np.flatnonzero(made), case.casts.made_in(begin, end)).tolist())


def _is_cast(case: FixCase, event: int, output: int, end: int) -> bool:
    """Returns whether backward only copies the gradient of a call's output to 16 bits, which needs no saved tensor.

    The gradient has the type of the output, or that of a sum in 32 bits to which the output is added after the call.

    Args:
        case: The recording.
        event: The allocation in backward.
        output: The output of the call, as a row in Tensors, or -1.
        end: The end of the call.
    """
    tensors, events = case.device.tensors, case.device.events
    if output < 0:
        return False
    size, result = (int(tensors.requested_bytes[row]) for row in (events.tensor[event], output))
    following = np.flatnonzero(events.action[end : end + _NEAR] == ALLOC)[:1] + end
    is_added = (tensors.requested_bytes[events.tensor[following]] == 2 * result).any()
    return 2 * size == result or (size == result and bool(is_added))


def _made_with(case: FixCase, row: int) -> frozenset[int]:
    """Returns the tensors that dropout allocates after a mask, as rows in Tensors; none if the tensor is no mask.

    Recomputing stops when the last tensor is saved. Most operators save their arguments, before they run. Dropout saves
    its mask, after it has run.
    """
    tensors, events = case.device.tensors, case.device.events
    innermost = next((frame for frame in case.trace.stacks[int(tensors.stack[row])] if frame.is_python), None)
    if innermost is None or "dropout" not in innermost.name:
        return frozenset()
    first = int(tensors.alloc_at[row]) + 1
    near = np.arange(first, min(first + _NEAR, len(events.action)))
    near = near[np.isin(events.action[near], (ALLOC, FREE_REQUESTED))]  # not those of segments
    rows = events.tensor[near]
    is_same = (events.action[near] == ALLOC) & (tensors.stack[rows] == tensors.stack[row])
    return frozenset(rows[: int(np.argmin(np.append(is_same, False)))].tolist())


def _own_gradient(case: FixCase, output: int, reached: int) -> int:
    """Returns the event at which backward of a call begins, if its last operator has saved the call's output.

    Its backward allocates a gradient of the same size, and then frees the output. If it does not, the result is -1.

    Args:
        case: The recording.
        output: The output of the call, as a row in Tensors.
        reached: Event at which the later part has freed its tensors.
    """
    tensors, events = case.device.tensors, case.device.events
    freed = int(tensors.free_requested_at[output])
    made = np.flatnonzero(events.action[reached:freed] == ALLOC)[-1:] + reached
    is_same = tensors.requested_bytes[events.tensor[made]] == tensors.requested_bytes[output]
    return int(made[0]) if is_same.any() else -1


def _freed_earlier(case: FixCase, row: int) -> int:
    """Returns the event at which a recomputed tensor is freed.

    Autograd frees a saved tensor after the operator, and a recomputed one within it: after the gradient of a weight,
    and before the gradients of biases, which the engine sums up at the end (engine.cpp, ``validate_outputs``).
    """
    tensors, events = case.device.tensors, case.device.events
    freed = int(tensors.free_requested_at[row])
    near = np.arange(max(freed - _NEAR, 0), freed)
    near = near[np.isin(events.action[near], (ALLOC, FREE_REQUESTED))]  # not those of segments
    is_alloc = events.action[near] == ALLOC
    last = int(np.flatnonzero(is_alloc)[-1]) if is_alloc.any() else 0
    first = last - int(np.argmin(np.append(is_alloc[: last + 1][::-1], False)))  # the allocation before is no neighbour
    made = near[first + 1 : last + 1]
    sizes = tensors.requested_bytes[events.tensor[made]]
    weights, biases = case.gradient_sizes
    found = made[1:][np.isin(sizes[:-1], weights) & np.isin(sizes[1:], biases)]
    if not len(found):
        return freed
    later = events.tensor[made[made > found[-1]]]  # the sum may have temporary tensors
    return int(found[-1]) if (tensors.free_requested_at[later] < freed).all() else freed


def calls_of(case: FixCase, path: str) -> Iterator[tuple[int, int, int, int]]:
    """Yields begin and end of each call of a block in forward, and of the backward pass that uses it."""
    spans = case.modules.spans[path]
    is_first = np.append(True, spans[1:, 0] > np.maximum.accumulate(spans[:, 1])[:-1])
    begins, ends = spans[is_first, 0], np.append(spans[:, 1][:-1][is_first[1:]], spans[-1, 1])
    for forward, forward_end, backward, backward_end in training_passes(case):
        for call in np.flatnonzero((begins >= forward) & (begins < forward_end)).tolist():
            begin, end = int(begins[call]), min(int(ends[call]), forward_end)
            yield begin, end, *_backward_of(case, begin, end, (backward, backward_end))


def _backward_of(case: FixCase, begin: int, end: int, following: tuple[int, int]) -> tuple[int, int]:
    """Returns begin and end of the backward pass that frees most bytes of a call.

    It is not the following one if the program calls backward on another loss first, as with two models.

    Args:
        case: The recording.
        begin, end: The call.
        following: Begin and end of the first backward pass after it.
    """
    tensors, passes = case.device.tensors, case.passes
    chosen = (passes.phase == BACKWARD) & (passes.begin >= following[0])
    begins, ends = passes.begin[chosen], passes.end[chosen]
    rows = np.flatnonzero((tensors.alloc_at >= begin) & (tensors.alloc_at < end))
    freed = tensors.free_requested_at[rows]
    number = np.searchsorted(begins, freed, side="right") - 1
    is_inside = (number >= 0) & (freed < ends[number])
    if not is_inside.any():
        return following
    sums = np.bincount(number[is_inside], weights=tensors.block_bytes[rows][is_inside])
    most = int(np.argmax(sums))
    return int(begins[most]), int(ends[most])


def model_calls(is_running: Array, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields begin and end of each call of a model in a forward pass, and the end of the code after it, as its loss.

    Args:
        is_running: Whether code of a module runs at each event; if it never does, the whole pass is one call.
        begin, end: The pass.
    """
    running = is_running[begin:end]
    starts = np.flatnonzero(running & ~np.append(False, running[:-1]))
    if not len(starts):
        yield begin, end, end
        return
    ends = np.flatnonzero(running & ~np.append(running[1:], False)) + 1
    for start, stop, following in zip(starts, ends, np.append(starts[1:], len(running)), strict=True):
        yield begin + int(start), begin + int(stop), begin + int(following)
