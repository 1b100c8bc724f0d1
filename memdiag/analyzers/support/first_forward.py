"""A first forward pass in which memory ran out, while it still kept more and more activations.

Nothing shows how much the rest of the pass needs. If little memory was free compared with what the pass had kept so
far, the rest would probably have filled it, too: a setting that makes it usable does not help.
"""

from __future__ import annotations

import numpy as np

from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.diagnosis.growth import GrowingMemory
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES, PHASES
from memdiag.units import format_bytes

SMALL = 0.1  # of the activations that the pass has kept: free memory that it would probably have filled, too

_ACTIVATION = CATEGORIES.index("activation")
_FORWARD, _BACKWARD, _OPTIMIZER = (PHASES.index(name) for name in ("forward", "backward", "optimizer"))


def growth_of_first_forward(here: DeviceMoment) -> GrowingMemory | None:
    """Returns the activations of a first forward pass as growing memory, if it outgrows the free memory."""
    if not outgrows_free_memory(here):
        return None
    kept = _kept(here)
    return GrowingMemory(phrase("joined.forward", bytes=format_bytes(kept)), kept, 1)


def _kept(here: DeviceMoment) -> int:
    """Returns the bytes of activations that the first forward pass has kept when memory ran out in it; otherwise 0."""
    device = here.device
    if np.isin(device.events.phase[: here.at + 1], (_BACKWARD, _OPTIMIZER)).any():
        return 0
    return 0 if device.start["allocated"] else _kept_at_failure(here)  # else the trace lacks the beginning


def _kept_at_failure(here: DeviceMoment) -> int:
    """Returns the bytes of activations of forward passes when memory ran out in one; otherwise 0."""
    device, tensors, live = here.device, here.device.tensors, here.view.live
    if not here.failed or device.events.phase[here.at] != _FORWARD:
        return 0
    of_pass = (tensors.category[live] == _ACTIVATION) & (tensors.phase_alloc[live] == _FORWARD)
    return int(tensors.block_bytes[live[of_pass]].sum())


def is_without_use(here: DeviceMoment) -> bool:
    """Returns whether a forward pass keeps its graph for a backward that probably never comes.

    Either no backward and no optimizer step ran before the failure, and no optimizer existed, or the pass is one of an
    evaluation in a training.
    """
    recorded = here.view.trace.recorded
    if recorded is None:
        return False
    if recorded.ended.is_evaluation:
        return bool(_kept_at_failure(here))
    return recorded.ended.has_needless_graph and bool(_kept(here))


def outgrows_free_memory(here: DeviceMoment) -> bool:
    """Returns whether the first forward pass would probably have filled all free memory before its end."""
    if here.usage["reserved"] < 0 or here.usage["active"] < 0:
        return False
    free = here.usage["reserved"] - here.usage["active"] + (here.device_free_bytes or 0)
    return free < SMALL * _kept(here)
