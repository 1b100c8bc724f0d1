"""Forward calls of layers and of stacks of layers, guessed from call stacks if a recording has no module marks.

Stacks show nested functions named ``forward``. The frames do not show to which object a method belongs, but they show a
loop over layers: the same line calls the same function again, which begins at its first line again. The outermost such
loop is the one over layers, and the ``forward`` that contains it belongs to the whole stack. Recomputation in backward
begins with the layer itself, which is recognised by the lines of its ``forward`` in the loop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.stacks import Stacks

Edge = tuple[int, bool]
Chain = tuple[tuple[str, int], ...]  # file and line of each ``forward``, the outermost first
_Loop = tuple[int, set[object]]  # depth of the loop, and the sites that call layers
_BACKWARD = schema.PHASES.index("backward")
_INNER = ("torch/nn/modules/module.py", "torch/utils/checkpoint.py", "torch/autograd/", "torch/_dynamo/")
_LEAST_CALLS = 3  # fewer repetitions do not count as a loop over layers


@dataclass
class _Open:
    """A call in progress: its call site and file, and its first and latest line."""

    site: object
    first: int
    last: int


@dataclass(frozen=True)
class _Moment:
    """An allocation: event, calls of ``forward``, the depth from which they are new, and whether it is in backward."""

    at: int
    chain: Chain
    entered: int
    is_backward: bool


def edges_of(stacks: Stacks, device: DeviceTrace, *, layers: bool) -> list[Edge]:
    """Returns the beginnings and ends of calls, in order; empty if the stacks show no loop.

    Args:
        stacks, device: The recording.
        layers: True for calls of each layer; False for calls of the stack of layers, from its first to its last layer.
    """
    moments, again = _walk(stacks, device)
    found = _loop_of(again)
    if found is None:
        return []
    loop, _ = found
    lines = _lines_of(moments, found)
    calls: list[
        list[int]
    ] = []  # first event of each call, the event after it, and the depth of the frames entered since the previous call
    is_open, entered = False, 0
    for moment in moments:
        entered = min(entered, moment.entered)
        depth = _depth_of(moment, found, lines) if layers or not moment.is_backward else -1
        inside = depth >= 0
        if is_open and (not inside or moment.entered <= depth):
            calls[-1][1] = moment.at
        if inside and (not is_open or moment.entered <= depth):
            if not layers and calls and entered >= loop:
                calls[-1][1] = device.num_events  # the call of the stack continues
            else:
                calls.append([moment.at, device.num_events])
            entered = loop
        is_open = inside
    return [edge for begin, end in calls for edge in ((begin, True), (end, False))]


def _lines_of(moments: list[_Moment], loop: _Loop) -> set[tuple[str, int]]:
    """Returns the lines of layers' ``forward`` that made requests in the loop."""
    depth, sites = loop
    return {
        moment.chain[depth]
        for moment in moments
        if not moment.is_backward and len(moment.chain) > depth and _site(moment.chain, depth) in sites
    }


def _depth_of(moment: _Moment, loop: _Loop, lines: set[tuple[str, int]]) -> int:
    """Returns the depth at which a layer is called; -1: none."""
    depth, sites = loop
    if moment.is_backward:
        return next((depth for depth, place in enumerate(moment.chain) if place in lines), -1)
    return depth if len(moment.chain) > depth and _site(moment.chain, depth) in sites else -1


def _loop_of(again: Counter[tuple[int, object]]) -> _Loop | None:
    """Returns depth and call sites of the outermost loop over layers, from the counts of ``_walk``; None: no loop."""
    loops = {place: count for place, count in again.items() if count >= _LEAST_CALLS}
    if not loops:
        return None
    most = max(loops.values())
    loop = min(depth for (depth, _), count in loops.items() if 2 * count >= most)
    return loop, {site for depth, site in loops if depth == loop}


def _walk(stacks: Stacks, device: DeviceTrace) -> tuple[list[_Moment], Counter[tuple[int, object]]]:
    """Returns the allocations, and how often a site repeated its last call at each depth; backward is ignored."""
    chains = [_chain(stacks, stack) for stack in range(len(stacks))]
    asks = np.flatnonzero(device.events.action == schema.ALLOC)
    moments: list[_Moment] = []
    again: Counter[tuple[int, object]] = Counter()
    calls: list[_Open] = []
    for at, stack, phase in zip(
        asks.tolist(), device.events.stack[asks].tolist(), device.events.phase[asks].tolist(), strict=True
    ):
        chain = chains[stack] if stack >= 0 else ()
        if stack < 0 and phase != _BACKWARD:
            continue  # without a stack, there is no evidence of a change
        entered = len(chain)
        for depth, (_, line) in enumerate(chain):
            site = _site(chain, depth)
            known = calls[depth] if depth < len(calls) and calls[depth].site == site else None
            if known is not None and (line >= known.last or line > known.first):
                known.last = line
                continue
            if known is not None and phase != _BACKWARD:
                again[depth, site] += 1
            entered = depth
            calls = [
                *calls[:depth],
                *(_Open(_site(chain, i), chain[i][1], chain[i][1]) for i in range(depth, len(chain))),
            ]
            break
        else:
            calls = calls[: len(chain)]
        moments.append(_Moment(at, chain, entered, phase == _BACKWARD))
    return moments, again


def _site(chain: Chain, depth: int) -> object:
    """Returns the calling line and the called file."""
    return (chain[depth - 1] if depth else None), chain[depth][0]


def _chain(stacks: Stacks, stack: int) -> Chain:
    """Returns the functions named ``forward`` on a stack, without PyTorch's wrappers."""
    frames = [frame for frame in reversed(stacks[stack]) if frame.name == "forward" and frame.is_python]
    return tuple((frame.filename, frame.line) for frame in frames if not any(part in frame.filename for part in _INNER))
