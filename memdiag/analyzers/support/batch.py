"""Measures how much of the live memory depends on the batch, to decide whether a smaller batch would help."""

from __future__ import annotations

import numpy as np

from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.diagnosis.thresholds import LITTLE_OF_BATCH
from memdiag.trace.schema import CATEGORIES, PHASES

_NOT_OF_THE_BATCH = np.array(
    [CATEGORIES.index(name) for name in ("parameter", "gradient", "optimizer_state", "collective", "workspace")]
)
_NOT_IN_PASSES = np.array([PHASES.index(name) for name in ("initialisation", "optimizer")])


def depends_on_batch(here: DeviceMoment) -> bool:
    """Returns whether more than a trifle of the memory live at a failure, its request included, depends on the batch.

    True where categories or phases are unknown.
    """
    bases, tensors, rows = here.view.trace.bases, here.device.tensors, here.view.live
    if "none" in {bases.get("category", "none"), bases.get("phase", "none")}:
        return True
    is_fixed = np.isin(tensors.category[rows], _NOT_OF_THE_BATCH)
    is_fixed &= tensors.free_requested_at[rows] != tensors.alloc_at[rows] + 1  # the workspace of a convolution grows
    kept = is_fixed | np.isin(tensors.phase_alloc[rows], _NOT_IN_PASSES)
    size = tensors.block_bytes[rows]
    asked = 0 if here.device.events.phase[here.at] in _NOT_IN_PASSES else here.request_bytes
    return bool(size[~kept].sum() + asked > LITTLE_OF_BATCH * size.sum())
