"""Keeps the state of Adam and AdamW in 8 bits, with bitsandbytes (finding MD102)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.fix.base import Proposal, Refusal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit, Made
from memdiag.fix.owners import optimizer_refusals
from memdiag.fix.structure import is_sharded, rows_with
from memdiag.offload.passes import OPTIMIZER
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES, LIFETIMES
from memdiag.units import MIB

NAME = "eight-bit-optimizer"
_STATE = CATEGORIES.index("optimizer_state")
_BRIEF = [LIFETIMES.index(name) for name in ("temporary", "within_phase")]
_FILES = ("/torch/optim/adam.py", "/torch/optim/adamw.py")
_FLOOR = 64 * MIB
_LEAST = 4096  # elements; the state of smaller parameters keeps 32 bits
_BLOCK = 256  # elements with a common factor of 4 bytes
_LIBRARY = "library bitsandbytes"
_LINE = "bitsandbytes.optim.AdamW8bit(model.parameters())"


def propose(case: FixCase) -> Iterable[Proposal | Refusal]:
    """Yields the remedy if Adam or AdamW of torch.optim has a large state, and the program can import bitsandbytes."""
    tensors = case.device.tensors
    state = np.flatnonzero((tensors.category == _STATE) & (tensors.alloc_at >= 0))
    inside = [frame.filename.replace("\\", "/").endswith(_FILES) for frame in case.trace.stacks.frames]
    below = rows_with(case, inside, OPTIMIZER)
    state = np.intersect1d(state, below)
    state = np.setdiff1d(state, np.fromiter(case.given.edit.dropped, np.int64, len(case.given.edit.dropped)))
    if case.trace.backend != "cuda" or is_sharded(case) or int(tensors.block_bytes[state].sum()) < _FLOOR:
        return
    refusals, state = optimizer_refusals(case, NAME, state)
    yield from refusals
    if int(tensors.block_bytes[state].sum()) < _FLOOR:
        return
    element = next((int(fact.split()[1]) for fact in case.facts if fact.startswith("state ")), 4)
    if _LIBRARY not in case.facts:
        reason = phrase("fix.refused.library", name="bitsandbytes")
        yield Refusal(NAME, reason, (), f"pip install bitsandbytes; {_LINE}")
        return
    resized: dict[int, int] = {}
    made: list[Made] = []
    for row in state.tolist():
        count = int(tensors.requested_bytes[row]) // element
        if count >= _LEAST:
            resized[row] = count
            born, gone = int(tensors.alloc_at[row]), int(tensors.free_requested_at[row])
            made.append(Made(born, gone, -(-count // _BLOCK) * 4, row))
    brief = np.flatnonzero(np.isin(tensors.lifetime, _BRIEF) & (tensors.phase_alloc == OPTIMIZER))
    dropped = np.intersect1d(brief, below).tolist()
    yield Proposal(
        NAME,
        phrase("fix.eight-bit-optimizer"),
        tuple(frame.label for frame in case.callers(state)[-1:]),
        Edit(frozenset(dropped), resized=resized, made=tuple(made)),
        _LINE,
        phrase("fix.eight-bit-optimizer.caveat"),
        phrase("fix.eight-bit-optimizer.cost"),
        "eight_bit_optimizer",
        is_safe=False,
    )
