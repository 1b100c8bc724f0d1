"""Memory that the first step of a training still needs at a failure, if no setting can free that much."""

from __future__ import annotations

from memdiag.analyzers.support.first_forward import growth_of_first_forward, outgrows_free_memory
from memdiag.analyzers.support.model_state import available_bytes, state_out_of_reach
from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.diagnosis.growth import GrowingMemory
from memdiag.text import phrase
from memdiag.units import format_bytes


def exceeds_memory(here: DeviceMoment) -> bool:
    """Returns whether the first step would have failed later even if all free memory had served the request."""
    return state_out_of_reach(here) is not None or outgrows_free_memory(here)


def growth_in_first_step(here: DeviceMoment) -> GrowingMemory | None:
    """Returns the need of the first step as growing memory if it exceeds the memory, otherwise None."""
    state = state_out_of_reach(here)
    if state is None:
        return growth_of_first_forward(here)
    sizes = {"needed": format_bytes(state.total), "available": format_bytes(available_bytes(here) or 0)}
    return GrowingMemory(phrase("joined.state.least" if state.is_least else "joined.state", **sizes), state.total, 1)
