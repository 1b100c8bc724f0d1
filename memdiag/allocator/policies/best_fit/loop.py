"""The loop over the calls with best fit instead of PyTorch's size classes.

Every request of a pool and stream goes to the lane of small blocks, because the engine splits these at any multiple of
512 bytes.
"""

from __future__ import annotations

from memdiag.allocator.engine.loop import Calls, Own, loop_of, make_live
from memdiag.allocator.engine.malloc import malloc
from memdiag.allocator.engine.memory import NONE, Nodes, State
from memdiag.allocator.engine.release import lane_of
from memdiag.allocator.result import OK, OUT_OF_MEMORY
from memdiag.trace.compiled import lean_part
from memdiag.trace.table import Array


@lean_part
def serve(
    state: State, nodes: Nodes, log: Array, out: Array, calls: Calls, blocks: Array, own: Own, i: int
) -> tuple[int, int, int]:
    """Serves a request; returns its status, the block, and the bytes of the block."""
    if calls.size[i] <= 0:
        return OK, NONE, -1
    lane = lane_of(state, calls.pool[i], 1, calls.stream[i])
    block = malloc(state, nodes, log, lane, calls.rounded[i], calls.segment_size[i], calls.tensor[i])
    if block == NONE:
        return OUT_OF_MEMORY, NONE, -1
    make_live(state, nodes, log, blocks, block, calls.tensor[i], calls.size[i])
    return OK, block, nodes[block].size


run = loop_of("run_best_fit", serve=serve)
