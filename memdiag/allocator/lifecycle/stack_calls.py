"""Forward calls of layers and of stacks of layers, guessed from call stacks where a recording has no module marks.

Stacks show functions named ``forward`` within each other. The frames do not say which object a method belongs to, but a loop over layers
shows: the same line calls the same function again, which begins at its first line again. The outermost such loop is the one over layers,
and the ``forward`` that holds it is that of the whole stack.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from memdiag.trace import schema
from memdiag.trace.model import DeviceTrace
from memdiag.trace.stacks import Stacks

Edge = tuple[int, bool]
Chain = tuple[tuple[str, int], ...]  # file and line of each forward, the outermost first
_BACKWARD = schema.PHASES.index("backward")
_INNER = ("torch/nn/modules/module.py", "torch/utils/checkpoint.py", "torch/autograd/", "torch/_dynamo/")
_LEAST_CALLS = 3  # fewer repetitions are no loop over layers


@dataclass
class _Open:
    """A call that is under way: what it was called from, and the first and the latest of its lines."""

    key: object
    first: int
    last: int


def edges_of(stacks: Stacks, device: DeviceTrace, *, layers: bool) -> list[Edge]:
    """Returns where calls begin and end, in order: of layers, or of stacks of layers; empty where the stacks show no loop."""
    events, again = _entries(stacks, device)
    if not again:
        return []
    most = max(again.values())
    depth = min(depth for depth, count in again.items() if 2 * count >= most)
    wanted = depth if layers else max(depth - 1, 0)
    edges: list[Edge] = []
    is_open = False
    for at, entered, depth_now in events:
        goes_on = is_open and depth_now > wanted and entered > wanted
        if goes_on:
            continue
        if is_open:
            edges.append((at, False))
        is_open = depth_now > wanted
        if is_open:
            edges.append((at, True))
    return [*edges, (device.num_events, False)] if is_open else edges


def _entries(stacks: Stacks, device: DeviceTrace) -> tuple[list[tuple[int, int, int]], Counter[int]]:
    """Walks over allocations.

    Returns:
        For each: the event, the depth from which on its calls of ``forward`` are others than before, and how many there are; and for each
        depth how often a function was called anew from where it had just been called.
    """
    chains = [_chain(stacks, stack) for stack in range(len(stacks))]
    action, stack_of, phase = device.events.action, device.events.stack, device.events.phase
    asks = np.flatnonzero(action == schema.ALLOC)
    events: list[tuple[int, int, int]] = []
    again: Counter[int] = Counter()
    calls: list[_Open] = []
    for at, stack, of_phase in zip(asks.tolist(), stack_of[asks].tolist(), phase[asks].tolist(), strict=True):
        chain = chains[stack] if stack >= 0 else ()
        if not chain and of_phase != _BACKWARD and stack < 0:
            continue  # no stack, and no sign that anything has changed
        entered = len(chain)
        for depth, (file, line) in enumerate(chain):
            key = (chain[:depth], file)
            if depth < len(calls) and calls[depth].key == key:
                known = calls[depth]
                if line >= known.last or line > known.first:
                    known.last = line
                    continue
                again[depth] += 1
            entered = depth
            calls = [*calls[:depth], *(_Open((chain[:i], chain[i][0]), chain[i][1], chain[i][1]) for i in range(depth, len(chain)))]
            break
        else:
            calls = calls[: len(chain)]
        events.append((at, entered, len(chain)))
    return events, Counter({depth: count for depth, count in again.items() if count >= _LEAST_CALLS})


def _chain(stacks: Stacks, stack: int) -> Chain:
    """Returns the functions named ``forward`` on a stack, wrappers of PyTorch's left out."""
    frames = [frame for frame in reversed(stacks[stack]) if frame.name == "forward" and frame.is_python]
    return tuple((frame.filename, frame.line) for frame in frames if not any(part in frame.filename for part in _INNER))
