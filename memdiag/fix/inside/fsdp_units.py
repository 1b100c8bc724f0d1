"""Shards each block of a model as a separate unit."""

import functools

import torch


def fsdp_units(blocks):
    """Makes ``fully_shard`` of a model that has some blocks shard each of them first, with the same options.

    Args:
        blocks: Their paths in the model: ["layers.0", "layers.1"].
    """
    from torch.distributed import fsdp

    original = fsdp.fully_shard

    @functools.wraps(original)
    def fully_shard(module, *args, **options):
        parts = dict(module.named_modules()) if isinstance(module, torch.nn.Module) else {}
        found = [parts[path] for path in blocks if path in parts]
        is_whole = len(found) == len(blocks) and not any(isinstance(part, fsdp.FSDPModule) for part in found)
        if is_whole and not _are_tied(module, found):
            for part in found:
                original(part, *args, **options)
        return original(module, *args, **options)

    fsdp.fully_shard = fully_shard


def _are_tied(model, parts):
    """Returns whether a parameter of a part has several names in the model."""
    counts = {}
    for _, parameter in model.named_parameters(remove_duplicate=False):
        counts[id(parameter)] = counts.get(id(parameter), 0) + 1
    return any(counts[id(parameter)] > 1 for part in parts for parameter in part.parameters())
