"""The PyTorch snippet that keeps saved tensors of forward on the host. Users paste it; tests run it unchanged."""

from __future__ import annotations

# Destination of the copies. On a CPU, where it can only be tried out, they go to memory outside PyTorch.
PINNED = "torch.empty(memory.numel(), dtype=torch.uint8, pin_memory=True)"
ELSEWHERE = "torch.from_numpy(__import__('numpy').empty(memory.numel(), 'uint8'))"

SAVED_TENSORS = '''\
import weakref

import torch


def offload(model, modules, smallest=SMALLEST):
    """Keeps what these modules save for backward in pinned host memory, if it has at least so many bytes."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    copies = weakref.WeakValueDictionary()  # memory that several operators save is copied once

    class Copy:
        def __init__(self, tensor):
            memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
            self.host = ROOM
            self.host.copy_(memory, non_blocking=True)

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.nbytes() < smallest or storage.data_ptr() in weights:
            return tensor
        key = (storage.data_ptr(), storage.nbytes(), tensor._version)
        copy = copies.get(key)
        if copy is None:
            copy = copies[key] = Copy(tensor)  # held by what is returned: gone when backward is through with it
            weakref.finalize(storage, copies.pop, key, None)  # this address may soon hold something else
        return copy, tensor.device, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()

    def unpack(packed):
        if isinstance(packed, torch.Tensor):
            return packed
        copy, device, dtype, shape, stride, offset = packed
        return copy.host.view(dtype).as_strided(shape, stride, offset).to(device, non_blocking=True, copy=True)

    for name in modules:
        part, stack = model.get_submodule(name), []

        def enter(*_, stack=stack):
            stack.append(torch.autograd.graph.saved_tensors_hooks(pack, unpack))
            stack[-1].__enter__()

        def leave(*_, stack=stack):
            stack.pop().__exit__(None, None, None)

        part.register_forward_pre_hook(enter)
        part.register_forward_hook(leave, always_call=True)


offload(model, MODULES)
'''
