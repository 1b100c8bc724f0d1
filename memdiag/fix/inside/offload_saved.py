"""Keeps what some modules save for backward in host memory between their forward and backward.

The device tensors are freed when the module's forward has ended. All of them come back when backward needs the first.
"""

import weakref

import torch
from torch.autograd.graph import saved_tensors_hooks


def offload_saved(modules, smallest_bytes):
    """Offloads saved tensors of some modules, in each model that has them.

    Args:
        modules: Their paths in the model that the program calls: ["layers.0", "layers.1"].
        smallest_bytes: Smaller tensors stay on the device, and so do weights and arguments of the modules.
    """
    prefixes = {"module", "_fsdp_wrapped_module", "_forward_module", "_orig_mod"}
    seen = weakref.WeakSet()  # models and their modules

    def before(model, _):
        if model in seen or not model.training:
            return
        named = dict(model.named_modules())
        seen.update(named.values())
        for path, part in named.items():
            if ".".join(name for name in path.split(".") if name not in prefixes) in modules:
                _offload(part, smallest_bytes)

    torch.nn.modules.module.register_module_forward_pre_hook(before)


def _offload(part, smallest_bytes):
    running = []

    def enter(part, args, kwargs):
        call = None
        if part.training and torch.is_grad_enabled():
            call = _Call(part, (args, kwargs), smallest_bytes)
            call.hooks.__enter__()
        running.append(call)

    def leave(*_):
        call = running.pop()
        if call is not None:
            call.hooks.__exit__(None, None, None)
            call.held.clear()

    part.register_forward_pre_hook(enter, with_kwargs=True)
    part.register_forward_hook(leave, always_call=True)


class _Call:
    """The tensors that one call of a module saves for backward.

    ``held`` has the storages on the device, which live until the call ends. ``copies`` has the copies by address and
    version. It does not keep them alive: a copy is freed with the last node of autograd that saved it.
    """

    def __init__(self, part, arguments, smallest_bytes):
        weights = [*part.parameters(), *part.buffers()]
        self.device = weights[0].device if weights else None
        self.staying = {each.untyped_storage().data_ptr() for each in [*weights, *_tensors(arguments)]}
        # autocast caches its copies of weights, so that they would not be freed
        self.casts = {2 * each.numel() for each in weights if each.element_size() == 4}
        self.smallest_bytes = smallest_bytes
        self.held, self.copies = [], weakref.WeakValueDictionary()
        self.hooks = saved_tensors_hooks(self.pack, self.unpack)

    def pack(self, tensor):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            return tensor
        storage = tensor.untyped_storage()
        size, address = storage.nbytes(), storage.data_ptr()
        if size < self.smallest_bytes or address in self.staying or tensor.device != self.device or size in self.casts:
            return tensor
        copy = self.copies.get((address, tensor._version))
        if copy is None:
            self.held.append(storage)
            copy = self.copies[address, tensor._version] = _Copy(tensor)
        return copy, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()

    def unpack(self, packed):
        if isinstance(packed, torch.Tensor):
            return packed
        copy, dtype, shape, stride, offset = packed
        if copy.on_host is not None:
            for each in list(self.copies.values()):
                each.fetch()
        storage = copy.on_device.untyped_storage()
        return torch.empty(0, dtype=dtype, device=self.device).set_(storage, offset, shape, stride)


class _Copy:
    """The memory of a saved tensor, on the host or back on the device."""

    def __init__(self, tensor):
        memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
        self.device, self.on_device = tensor.device, None
        self.on_host = torch.empty(memory.numel(), dtype=torch.uint8, pin_memory=tensor.device.type != "cpu")
        self.on_host.copy_(memory, non_blocking=True)

    def fetch(self):
        if self.on_host is not None:
            self.on_device = self.on_host.to(self.device, non_blocking=True, copy=True)
            self.on_host = None


def _tensors(value):
    """Yields the tensors in arguments of a call."""
    if isinstance(value, torch.Tensor):
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided:
            yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
