"""Releases cached memory once, before the first forward pass."""

import gc

import torch


def release_leftovers():
    """Releases the free memory of the caching allocator when the first module runs."""

    def before(module, args):
        handle.remove()
        gc.collect()
        device = torch.npu if hasattr(torch, "npu") else torch.cuda
        if device.is_initialized():
            device.empty_cache()

    handle = torch.nn.modules.module.register_module_forward_pre_hook(before)
