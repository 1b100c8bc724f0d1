"""Recomputes the activations of some modules in backward instead of keeping them."""

import contextlib
import functools

import torch
from torch.utils.checkpoint import checkpoint

_CACHES = {"past_key_value", "past_key_values", "layer_past"}  # a second forward would append to them again
_WRAPPERS = {"module", "_fsdp_wrapped_module", "_forward_module"}


def checkpoint_modules(modules):
    """Enables activation checkpointing for some modules of the first model that has all of them.

    Args:
        modules: Their paths in the model: ["layers.0", "layers.1"].
    """
    hook = None
    others = set()  # modules that do not have all of them

    def before(model, _):
        if id(model) in others or not model.training:
            return
        found = _find(model, modules)
        if found is None:
            others.add(id(model))
            return
        hook.remove()
        for part in found:
            _enable(part)

    hook = torch.nn.modules.module.register_module_forward_pre_hook(before)


def _find(model, modules):
    """Returns the modules, or None if this model does not have all of them."""
    parts = {}
    for path, part in model.named_modules():
        parts[".".join(name for name in path.split(".") if name not in _WRAPPERS)] = part
    return [parts[path] for path in modules] if all(path in parts for path in modules) else None


def _enable(part):
    if hasattr(part, "gradient_checkpointing"):  # transformers: its own switch also turns off the cache of keys
        part.gradient_checkpointing = True
        part._gradient_checkpointing_func = functools.partial(checkpoint, use_reentrant=False)
        return
    forward = part.forward

    @functools.wraps(forward)
    def recomputed(*args, **kwargs):
        if not (part.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        kwargs.update(dict.fromkeys(_CACHES & kwargs.keys()))
        return checkpoint(forward, *args, use_reentrant=False, context_fn=contexts, **kwargs)

    def contexts():
        return contextlib.nullcontext(), _statistics_kept(part)

    part.forward = recomputed


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
