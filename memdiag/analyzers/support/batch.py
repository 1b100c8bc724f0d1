"""Decides whether a smaller batch would help after a failure, and which other way there is to need less memory."""

from __future__ import annotations

import numpy as np

from memdiag.analyzers.support.model_state import available_bytes, state_out_of_reach
from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.diagnosis.thresholds import LITTLE_OF_BATCH
from memdiag.trace.schema import CATEGORIES, PHASES

_NOT_OF_THE_BATCH = np.array(
    [CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state", "collective", "workspace")]
)
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


def way_to_need_less(here: DeviceMoment) -> str:
    """Returns the remedy (a key of the catalogue) that remains if no setting gets past a failure."""
    if (state := state_out_of_reach(here)) is not None:
        on_host = here.view.trace.backend == "npu"  # MindSpeed keeps the states there
        rest = state.parameters + state.gradients + (0 if on_host else state.states_in_8_bits)
        return "smaller-optimizer" if state.states and rest <= (available_bytes(here) or 0) else "shard"
    if depends_on_batch(here):
        return "smaller-batch"
    device = here.device
    is_step = device.events.phase[here.at] == PHASES.index("optimizer")
    has_state = (device.tensors.category[here.view.live] == CATEGORIES.index("optimizer_state")).any()
    return "smaller-optimizer" if is_step and has_state else "see-live"
