"""Optimizers that exist, also before their first step.

If a program runs out of memory before, their state will still be allocated.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Any

from .guard import contained

_MOST = 64


def existing_optimizers() -> list[Any]:
    """Returns the optimizers that exist, at most ``_MOST``, those of torch.optim first."""
    base = getattr(import_module("torch.optim.optimizer"), "Optimizer", None)
    found = _instances_of(base) if base is not None else []
    return sorted(found, key=lambda each: not _is_torch(each))[:_MOST]


def _instances_of(*bases: type) -> list[Any]:
    """Returns all objects of these classes and their subclasses.

    The loop calls no function: PyTorch's profiler, which runs in recordings on the CPU, would report each call.
    """
    classes = list(bases)
    for each in classes:
        classes += type.__subclasses__(each)
    numbers = {id(each) for each in classes}  # a metaclass may have no hash
    objects = gc.get_objects()
    kinds = map(id, map(type, objects))
    return [each for each, kind in zip(objects, kinds) if kind in numbers]


@contained
def optimizers(device_type: str) -> list[dict[str, Any]]:
    """Returns class, trained parameters on such devices, and state-determining settings of the existing optimizers.

    Optimizers without a parameter of their own are left out, such as the wrappers of Accelerate and Lightning.
    """
    layers = import_module("torch.nn")
    embeddings = (layers.Embedding, layers.EmbeddingBag)
    sparse = {id(each.weight) for each in _instances_of(*embeddings) if each.sparse}
    seen: set[int] = set()
    rows = []
    for optimizer in existing_optimizers():
        tensors = [tensor for group in getattr(optimizer, "param_groups", None) or [] for tensor in group["params"]]
        own = [tensor for tensor in tensors if id(tensor) not in seen]
        if own or not tensors:
            rows.append(_facts_of(optimizer, own, sparse, device_type))
        seen.update(map(id, own))
    return rows


def _facts_of(optimizer: Any, tensors: list[Any], sparse: set[int], device_type: str) -> dict[str, Any]:
    groups = getattr(optimizer, "param_groups", None) or []
    local = [(id(tensor), _local(tensor)) for tensor in tensors if tensor.requires_grad]
    trained = [(key, each) for key, each in local if each.device.type == device_type]
    name, module = type(optimizer).__name__, type(optimizer).__module__
    if hasattr(import_module("torch.optim"), name) and not _is_torch(optimizer):  # its state may have other sizes
        name = f"{module.partition('.')[0]}.{name}"
    return {
        "class": name,
        "parameter_bytes": sum(_bytes_of(each) for _, each in trained),
        "sparse_bytes": sum(_bytes_of(each) for key, each in trained if key in sparse),
        "num_elements": sum(int(each.numel()) for _, each in trained),
        "num_parameters": len(tensors),
        "num_states": len(getattr(optimizer, "state", ())),
        "amsgrad": any(bool(group.get("amsgrad")) for group in groups),
        "momentum": any(bool(group.get("momentum")) for group in groups),
        "centered": any(bool(group.get("centered")) for group in groups),
    }


def _is_torch(optimizer: Any) -> bool:
    return type(optimizer).__module__.startswith("torch.optim.")


def _local(parameter: Any) -> Any:
    """Returns the shard of a parameter on this rank; FSDP1 gathers the whole parameter for forward and backward."""
    for name in ("_local_tensor", "_local_shard"):
        shard = getattr(parameter, name, None)
        if shard is not None:
            return shard
    return parameter


def _bytes_of(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())
