"""Runs models on parts of the batch, and recomputes each part in backward."""

import contextlib
import inspect
import threading

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

_running = threading.local()  # backward recomputes in a thread of autograd


def micro_batches(count, refuse=None):
    """Makes each model that the program calls in training run on parts of its batch.

    A model that does not take and return tensors with the batch in their first dimension stays as it is.

    Args:
        count: Number of parts.
        refuse: Called with the reason and the class of each model that stays as it is.
    """
    original = torch.nn.Module.__call__
    refused = set()

    def call(model, *args, **kwargs):
        is_part = getattr(_running, "depth", 0) or not (model.training and torch.is_grad_enabled())
        if is_part or _in_compiler() or not any(parameter.requires_grad for parameter in model.parameters()):
            return original(model, *args, **kwargs)

        def run(*given, **named):
            _running.depth = getattr(_running, "depth", 0) + 1  # the modules in it stay as they are
            try:
                return original(model, *given, **named)
            finally:
                _running.depth -= 1

        parts = None if type(model) in refused else _split(model, args, kwargs, count)
        if parts is None:
            if type(model) not in refused and refuse is not None:
                refuse("batch", type(model).__name__)
            refused.add(type(model))
            return run(*args, **kwargs)
        outputs = [
            checkpoint(run, *given, use_reentrant=False, context_fn=lambda: _contexts(model), **named)
            for given, named, _ in parts
        ]
        return _joined(outputs, [rows for _, _, rows in parts])

    torch.nn.Module.__call__ = call


def _in_compiler():
    return getattr(getattr(torch, "compiler", None), "is_compiling", bool)()  # since torch 2.1


def _split(model, args, kwargs, count):
    """Returns the arguments and the rows of each part, or None if the model cannot run on parts."""
    given = [*args, *kwargs.values()]
    tensors = [each for each in given if isinstance(each, torch.Tensor) and each.dim()]
    if not tensors or any(isinstance(each, (list, tuple, dict)) for each in given):
        return None
    if any(getattr(part, "batch_first", True) is False for part in model.modules()):  # the first dimension is time
        return None
    rows = len(tensors[0])
    if rows < 2 or any(isinstance(each, torch.Tensor) and each.dim() and each.requires_grad for each in given):
        return None  # gradients of inputs, as in a GAN, would need the whole batch
    if "use_cache" in inspect.signature(model.forward).parameters and hasattr(model, "config"):
        kwargs = {**kwargs, "use_cache": False}  # recomputing would append to the cache of keys again
    sizes = [len(each) for each in torch.arange(rows).chunk(min(count, rows))]
    parts, begin = [], 0
    for size in sizes:

        def part(value, begin=begin, size=size):
            is_batch = isinstance(value, torch.Tensor) and value.dim() and len(value) == rows
            return value[begin : begin + size] if is_batch else value

        parts.append(([part(each) for each in args], {name: part(each) for name, each in kwargs.items()}, size))
        begin += size
    return parts


def _joined(outputs, rows):
    """Returns the output for the whole batch: rows are concatenated, and scalars averaged."""
    flat = [tree_flatten(output) for output in outputs]
    total, joined = sum(rows), []
    for leaves in zip(*(leaves for leaves, _ in flat), strict=True):
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            joined.append(leaves[0])
        elif leaves[0].dim() == 0:
            joined.append(sum(leaf * (size / total) for leaf, size in zip(leaves, rows, strict=True)))
        else:
            joined.append(torch.cat(leaves) if len(leaves[0]) == rows[0] else leaves[0])
    return tree_unflatten(joined, flat[0][1])


def _contexts(model):
    return contextlib.nullcontext(), _frozen_statistics(model)


@contextlib.contextmanager
def _frozen_statistics(model):
    """Keeps running statistics as they are while a part is recomputed: its first forward has already updated them.

    The same as in ``checkpoint_modules``: a program gets each of these files by itself.
    """
    norms = [each for each in model.modules() if getattr(each, "num_batches_tracked", None) is not None]
    before = [(each, each.momentum, each.num_batches_tracked) for each in norms]
    for each in norms:
        each.momentum, each.num_batches_tracked = 0.0, each.num_batches_tracked.clone()
    try:
        yield
    finally:
        for each, momentum, count in before:
            each.momentum, each.num_batches_tracked = momentum, count
