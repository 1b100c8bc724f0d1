"""Decides whether a smaller batch would help after a failure, and which other way there is to need less memory."""

from __future__ import annotations

import numpy as np

from memdiag.analyzers.support.first_forward import is_without_use
from memdiag.analyzers.support.model_state import available_bytes, state_out_of_reach
from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.analyzers.support.optimizers import for_optimizer, optimizer_of
from memdiag.diagnosis.facts import Facts
from memdiag.diagnosis.remedies import offer, present
from memdiag.diagnosis.thresholds import LITTLE_OF_BATCH
from memdiag.results.finding import Fix
from memdiag.trace.schema import CATEGORIES, PHASES
from memdiag.trace.table import Array

_NOT_OF_THE_BATCH = np.array(
    [CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state", "collective", "workspace")]
)
_FEW_BITS = ("/bitsandbytes/optim/", "/torchao/optim/")
_STATE = CATEGORIES.index("optimizer_state")
_NOT_IN_PASSES = np.array([PHASES.index(name) for name in ("initialisation", "optimizer")])


def depends_on_batch(here: DeviceMoment) -> bool:
    """Returns whether more than a trifle of the memory live at a failure, its request included, depends on the batch.

    True where categories or phases are unknown. False if the model's parameters, gradients and states alone need more
    memory than the device has.
    """
    if state_out_of_reach(here) is not None:
        return False
    bases, tensors, rows = here.view.trace.bases, here.device.tensors, here.view.live
    if "none" in {bases.get("category", "none"), bases.get("phase", "none")}:
        return True
    is_fixed = np.isin(tensors.category[rows], _NOT_OF_THE_BATCH)
    is_fixed &= tensors.free_requested_at[rows] != tensors.alloc_at[rows] + 1  # the workspace of a convolution grows
    kept = is_fixed | np.isin(tensors.phase_alloc[rows], _NOT_IN_PASSES)
    size = tensors.block_bytes[rows]
    asked = 0 if here.device.events.phase[here.at] in _NOT_IN_PASSES else here.request_bytes
    return bool(size[~kept].sum() + asked > LITTLE_OF_BATCH * size.sum())


def offer_less(here: DeviceMoment, facts: Facts, *, when: str = "", caveat: str = "") -> Fix | None:
    """Returns the remedy that remains if no setting gets past a failure, see ``offer``."""
    name = _way_to_need_less(here)
    own = {} if name == "no-graph" else {"when": when, "caveat": caveat}  # its conditions are more important
    fix = offer(name, here.settings.situation(facts), **own)
    return next(iter(for_optimizer(present(fix), optimizer_at(here))), None)


def optimizer_at(here: DeviceMoment) -> str:
    """Returns the class of torch.optim that made the states live at a moment, or "" if unknown."""
    tensors, live = here.device.tensors, here.view.live
    return optimizer_of(here.view.trace, tensors.stack[live[tensors.category[live] == _STATE]])


def _way_to_need_less(here: DeviceMoment) -> str:
    if is_without_use(here):
        return "no-graph"
    if (state := state_out_of_reach(here)) is not None:
        on_host = here.view.trace.backend == "npu"  # MindSpeed keeps the states there
        rest = state.parameters + state.gradients + (0 if on_host else state.states_in_8_bits)
        return "smaller-optimizer" if state.states and rest <= (available_bytes(here) or 0) else "shard"
    if depends_on_batch(here):
        return "smaller-batch"
    tensors, live = here.device.tensors, here.view.live
    states = live[tensors.category[live] == _STATE]
    if here.device.events.phase[here.at] != PHASES.index("optimizer") or not len(states):
        return "see-live"
    return "shard" if _have_few_bits(here, states) else "smaller-optimizer"


def _have_few_bits(here: DeviceMoment, states: Array) -> bool:
    """Returns whether a library of optimizers with 8 or 4 bits allocated these optimizer states."""
    stacks = here.view.trace.stacks
    paths = [frame.filename.replace("\\", "/") for frame in stacks.frames]
    of_library = stacks.with_frame(np.array([any(part in path for part in _FEW_BITS) for path in paths], bool))
    return bool(np.append(of_library, False)[here.device.tensors.stack[states]].any())
