"""Recomputes the activations of some modules in backward instead of keeping them."""

import contextlib
import functools
import weakref

import torch
from torch.utils.checkpoint import checkpoint

_CACHES = {"past_key_value", "past_key_values", "layer_past"}  # a second forward would append to them again
_PARTS = weakref.WeakSet()  # the modules that are recomputed
_FORWARDS = {}  # the forward functions of their classes
_WRAPPERS = {"module", "_fsdp_wrapped_module", "_forward_module", "_orig_mod"}


def checkpoint_modules(modules, refuse=None):
    """Enables activation checkpointing for some modules, in each model that has them.

    Args:
        modules: Their paths in the model that the program calls: ["layers.0", "layers.1"].
        refuse: Called with the reason and the path of each module that cannot be recomputed and stays as it is.
    """
    known = weakref.WeakSet()  # a module that the program calls is a model, unless it belongs to another one

    def before(model, _):
        if _is_compiling() or model in known or not model.training:
            return
        parts = {}
        for path, part in model.named_modules():
            parts[".".join(name for name in path.split(".") if name not in _WRAPPERS)] = part
        known.update(parts.values())
        known.add(model)
        found = [path for path in modules if path in parts]
        reasons = _obstacles(model) if found else {}
        for path in found:
            reason = next((reasons[id(each)] for each in parts[path].modules() if id(each) in reasons), None)
            if reason is None:
                _enable(parts[path])
            elif refuse is not None:
                refuse(reason, path)

    torch.nn.modules.module.register_module_forward_pre_hook(before)


def _is_compiling():
    return getattr(getattr(torch, "compiler", None), "is_compiling", bool)()  # since torch 2.1


def _obstacles(model):
    """Returns why modules cannot be recomputed from outside, by id."""
    found = {}
    for each in model.modules():
        name, reason = type(each).__name__, None
        if name == "OptimizedModule" or getattr(each, "_compiled_call_impl", None) is not None:
            reason = "compiled"
        elif name == "FullyShardedDataParallel":
            reason = "FSDP1"
        if reason is not None:
            found.update((id(part), reason) for part in each.modules())
        elif any(hasattr(parameter, "ds_id") for parameter in each.parameters(recurse=False)):
            found[id(each)] = "DeepSpeed ZeRO-3"
    return found


def _enable(part):
    kinds = {each.__name__ for each in type(part).__mro__}
    if "GradientCheckpointingLayer" in kinds:  # transformers: its own switch also turns off the cache of keys
        part.gradient_checkpointing = True
        part._gradient_checkpointing_func = functools.partial(checkpoint, use_reentrant=False)
        return
    if "forward" in part.__dict__:  # a framework has replaced it
        part.forward = _recomputing(part.forward, part)
        return
    kind = type(part)  # an attribute of the module would be copied and saved with it
    if kind not in _FORWARDS:
        _FORWARDS[kind] = kind.forward
        kind.forward = _of_parts(kind.forward, kind)
    _PARTS.add(part)


def _of_parts(forward, kind):
    @functools.wraps(forward)
    def recomputed(self, *args, **kwargs):
        if _is_compiling() or type(self) is not kind or self not in _PARTS:
            return forward(self, *args, **kwargs)
        return _recomputing(functools.partial(forward, self), self)(*args, **kwargs)

    return recomputed


def _recomputing(forward, part):
    def recomputed(*args, **kwargs):
        if not (part.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        kwargs.update(dict.fromkeys(_CACHES & kwargs.keys()))
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    def contexts():
        return contextlib.nullcontext(), _statistics_kept(part)

    return recomputed


@contextlib.contextmanager
def _statistics_kept(part):
    """Keeps running statistics as they are: the first forward has already updated them."""
    norms = [each for each in part.modules() if getattr(each, "num_batches_tracked", None) is not None]
    before = [(each, each.momentum, each.num_batches_tracked) for each in norms]
    for each in norms:
        each.momentum, each.num_batches_tracked = 0.0, each.num_batches_tracked.clone()
    try:
        yield
    finally:
        for each, momentum, count in before:
            each.momentum, each.num_batches_tracked = momentum, count
