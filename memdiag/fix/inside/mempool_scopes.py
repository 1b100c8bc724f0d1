"""Allocates the outputs of some modules, and optimizer states, in a memory pool of their own."""

import contextlib
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_OUTER = {"module", "_fsdp_wrapped_module", "_forward_module", "_orig_mod"}


def mempool_scopes(modules, has_states):
    """Opens the scope of a pool around calls of some modules, and around optimizer steps that create states.

    Args:
        modules: Paths of modules in the model that the program calls.
        has_states: Whether to open it around optimizer steps.
    """
    device = torch.npu if hasattr(torch, "npu") else torch.cuda
    if not hasattr(device, "MemPool") or not hasattr(device, "use_mem_pool"):
        return
    pools, open_scopes = [], []
    paths = weakref.WeakKeyDictionary()  # of modules in the model that the program calls

    def enter(owner, *_):
        scope = contextlib.ExitStack()
        pools[:] = pools or [device.MemPool()]  # made when the program already uses the device
        scope.enter_context(device.use_mem_pool(pools[0]))
        open_scopes.append((owner, scope))

    def leave(owner, *_):
        if open_scopes and open_scopes[-1][0] is owner:
            open_scopes.pop()[1].close()

    def before(module, args):
        if module not in paths:  # a module that the program calls is a model, unless it belongs to another one
            paths.update((part, _in_model(path)) for path, part in module.named_modules())
        if paths[module] in modules and device.is_initialized():
            enter(module)

    if modules:
        torch.nn.modules.module.register_module_forward_pre_hook(before)
        torch.nn.modules.module.register_module_forward_hook(leave, always_call=True)
    if has_states:
        register_optimizer_step_pre_hook(lambda one, *_: None if one.state else enter(one))
        register_optimizer_step_post_hook(leave)


def _in_model(path):
    return ".".join(name for name in path.split(".") if name not in _OUTER)
