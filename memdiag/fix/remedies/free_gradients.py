"""Frees gradients before the next forward instead of setting them to zero (finding MD112)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from memdiag.fix.base import Proposal
from memdiag.fix.case import FixCase
from memdiag.fix.edit import Edit
from memdiag.fix.structure import few
from memdiag.offload.passes import BACKWARD, FORWARD
from memdiag.text import phrase
from memdiag.trace.schema import CATEGORIES
from memdiag.trace.table import Array
from memdiag.units import MIB

NAME = "free-gradients"
_GRADIENT = CATEGORIES.index("gradient")
_FLOOR = 32 * MIB


def propose(case: FixCase) -> Iterable[Proposal]:
    """Yields the remedy if gradients of a step are still live in the next forward pass."""
    tensors, passes = case.device.tensors, case.passes
    begins = passes.begin[passes.phase == FORWARD]
    if not len(begins):
        return
    later = begins[np.minimum(np.searchsorted(begins, tensors.alloc_at, side="right"), len(begins) - 1)]
    # a gradient that is freed between forward and backward is not set to zero
    backwards = np.append(passes.begin[passes.phase == BACKWARD], case.device.num_events)
    used = backwards[np.searchsorted(backwards[:-1], later, side="right")]
    has_next = tensors.alloc_at < begins[-1]
    step = case.device.events.step
    crosses = step[later] > tensors.step_alloc
    old = np.flatnonzero(
        (tensors.category == _GRADIENT)
        & has_next
        & crosses
        & (tensors.free_requested_at > used)
        & (tensors.alloc_at >= 0)
    )
    old = old[~_has_successors(case, old)]
    old = old[_is_added_to(case, old)]
    if int(tensors.block_bytes[old].sum()) < _FLOOR:
        return
    freed = dict(zip(old.tolist(), later[old].tolist(), strict=True))
    yield Proposal(
        NAME,
        phrase("fix.free-gradients"),
        few(case.lines_calling("zero_grad")),
        Edit(freed={**freed, **_new_gradients(case, old, begins.tolist())}),
        "optimizer.zero_grad(set_to_none=True)",
        phrase("fix.free-gradients.caveat"),
        phrase("fix.free-gradients.cost"),
        "free_gradients",
    )


def _has_successors(case: FixCase, old: Array) -> Array:
    """Returns whether later steps allocate as many gradients of the same size that outlive backward, for each gradient.

    Such a gradient is freed in each step already, only after the next forward: a program with two optimizers calls
    ``zero_grad`` of one of them after the forward and backward of the other one.
    """
    tensors = case.device.tensors
    is_kept = (tensors.category == _GRADIENT) & (tensors.phase_alloc == BACKWARD) & (tensors.phase_free != BACKWARD)
    return _has_as_many_later(case, old, np.flatnonzero(is_kept))


def _is_added_to(case: FixCase, old: Array) -> Array:
    """Returns whether backward of the next step adds to a gradient: it allocates as many brief tensors of that size.

    The program may also keep a gradient that no step uses any more, with the models of earlier trials for example.
    """
    tensors = case.device.tensors
    is_brief = (tensors.phase_alloc == BACKWARD) & (tensors.phase_free == BACKWARD)
    return _has_as_many_later(case, old, np.flatnonzero(is_brief))


def _has_as_many_later(case: FixCase, old: Array, others: Array) -> Array:
    """Returns whether the next step allocates as many of some other tensors of the same size, for each gradient."""
    tensors = case.device.tensors
    found = np.zeros(len(old), bool)
    for size in np.unique(tensors.requested_bytes[old]).tolist():
        steps = tensors.step_alloc[others[tensors.requested_bytes[others] == size]]
        mine = np.flatnonzero(tensors.requested_bytes[old] == size)
        for step in np.unique(tensors.step_alloc[old[mine]]).tolist():
            same = tensors.step_alloc[old[mine]] == step
            found[mine[same]] = np.count_nonzero(steps == step + 1) >= np.count_nonzero(same)
    return found


def _new_gradients(case: FixCase, old: Array, begins: list[int]) -> dict[int, int]:
    """Returns when the gradients of later steps are freed: at the next forward.

    In the recording, backward adds them to the old ones. They are the tensors of the same size that live most briefly.
    """
    tensors, num_events = case.device.tensors, case.device.num_events
    sizes, counts = np.unique(tensors.requested_bytes[old], return_counts=True)
    within = (tensors.phase_alloc == BACKWARD) & (tensors.phase_free == BACKWARD)
    brief = np.flatnonzero(within & np.isin(tensors.requested_bytes, sizes))
    life = tensors.free_requested_at[brief] - tensors.alloc_at[brief]
    found: dict[int, int] = {}
    for begin, end in zip(begins, [*begins[1:], num_events], strict=True):
        here = (tensors.alloc_at[brief] >= begin) & (tensors.alloc_at[brief] < end)
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            same = np.flatnonzero(here & (tensors.requested_bytes[brief] == size))
            mine = old[tensors.requested_bytes[old] == size]
            made = np.count_nonzero((tensors.alloc_at[mine] >= begin) & (tensors.alloc_at[mine] < end))
            chosen = same[np.argsort(life[same], kind="stable")][: max(count - made, 0)]
            found |= dict.fromkeys(brief[chosen].tolist(), end)
    return found
