"""Optimizers that exist when a program runs out of memory before its first step.

Their state will still be allocated.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

from .guard import contained

_MOST = 64


@contained
def optimizers(device_type: str) -> list[dict[str, Any]]:
    """Returns class, trained parameters on such devices, and state-determining settings of the existing optimizers."""
    base = import_module("torch.optim.optimizer").Optimizer
    found = [each for each in gc.get_objects() if issubclass(type(each), base)]
    return [_facts_of(optimizer, device_type) for optimizer in found[:_MOST]]


def _facts_of(optimizer: Any, device_type: str) -> dict[str, Any]:
    groups = getattr(optimizer, "param_groups", None) or []
    tensors = [tensor for group in groups for tensor in group["params"]]
    local = [getattr(tensor, "_local_tensor", tensor) for tensor in tensors if tensor.requires_grad]
    trained = [each for each in local if each.device.type == device_type]
    return {
        "class": type(optimizer).__name__,
        "parameter_bytes": sum(int(each.numel()) * int(each.element_size()) for each in trained),
        "num_elements": sum(int(each.numel()) for each in trained),
        "num_parameters": len(tensors),
        "num_states": len(getattr(optimizer, "state", ())),
        "amsgrad": any(bool(group.get("amsgrad")) for group in groups),
        "momentum": any(bool(group.get("momentum")) for group in groups),
        "centered": any(bool(group.get("centered")) for group in groups),
    }
