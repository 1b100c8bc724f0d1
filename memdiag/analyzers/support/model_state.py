"""Memory that parameters, gradients and optimizer states need together, with a batch of any size.

It is known if memory ran out in the first step of a recording: the recorder then notes which optimizers exist.
"""

from __future__ import annotations

from dataclasses import dataclass

from memdiag.analyzers.support.context import DeviceView
from memdiag.analyzers.support.moments import DeviceMoment
from memdiag.analyzers.support.optimizers import IN_8_BITS
from memdiag.trace.recording import Optimizer
from memdiag.trace.schema import CATEGORIES

MOST = 4  # optimizers: with one for each parameter, backward runs the steps, and gradients are not live together

_STATES_OF_ADAMW = 2
_DIVIDING = "/deepspeed/"
_PARAMETER = CATEGORIES.index("parameter")


@dataclass(frozen=True)
class ModelState:
    """Bytes that are live together in each optimizer step.

    Attributes:
        optimizers: Classes of the optimizers.
        parameters: All parameters and buffers.
        gradients: Of the parameters that the optimizers update, except sparse ones, which depend on the batch.
        states: Of the optimizers.
        states_in_8_bits: States of 8 bits for each element that would replace them: of the same class if bitsandbytes
            has it, otherwise the two of AdamW.
        is_least: Whether an optimizer is of a class whose states are unknown, and count as none.
    """

    optimizers: tuple[str, ...]
    parameters: int
    gradients: int
    states: int
    states_in_8_bits: int
    is_least: bool = False

    @property
    def total(self) -> int:
        """All of them together."""
        return self.parameters + self.gradients + self.states


def model_state(view: DeviceView) -> ModelState | None:
    """Returns the state of the training that failed in its first step; None if unknown."""
    recorded, tensors = view.trace.recorded, view.device.tensors
    known = recorded.ended.optimizers if recorded is not None else ()
    if not known or len(known) > MOST or len(view.trace.devices) > 1 or _is_divided(view):
        return None
    is_least = any(each.states_per_parameter is None for each in known)
    if is_least:  # it may contain one of the others
        known = (max(known, key=lambda each: each.parameter_bytes),)
    trained = sum(each.parameter_bytes for each in known)
    parameters = int(tensors.block_bytes[view.live[tensors.category[view.live] == _PARAMETER]].sum())
    return ModelState(
        tuple(dict.fromkeys(each.name for each in known)),
        max(parameters, trained),
        trained - sum(each.sparse_bytes for each in known),
        sum((each.states_per_parameter or 0) * each.parameter_bytes for each in known),
        sum(_states_in_8_bits(each) * (each.num_elements or each.parameter_bytes // 4) for each in known),
        is_least,
    )


def _states_in_8_bits(known: Optimizer) -> int:
    return (known.states_per_parameter or 0) if known.name in IN_8_BITS else _STATES_OF_ADAMW


def _is_divided(view: DeviceView) -> bool:
    """Returns whether a library gives the optimizers parts of the parameters, or copies of them, later on."""
    return any(_DIVIDING in frame.filename.replace("\\", "/") for frame in view.trace.stacks.frames)


def available_bytes(here: DeviceMoment) -> int | None:
    """Returns the memory that PyTorch could have when memory ran out, or None if unknown."""
    left, reserved = here.device_free_bytes, here.usage["reserved"]
    return None if left is None or reserved < 0 else reserved + left


def state_out_of_reach(here: DeviceMoment) -> ModelState | None:
    """Returns the state of the training if it alone needs more memory than the device has; otherwise None."""
    state, available = model_state(here.view), available_bytes(here)
    return state if state is not None and available is not None and state.total > available else None
