"""MindSpeed's Python side: plugs the allocator into torch_npu and calls it when the training enters and leaves a phase.

Section 3 of the feature's specification lists the wrapped functions. Upstream wraps those of Megatron; other programs
wrap their own with the same functions.
"""

import ctypes
import functools

import torch
import torch_npu


def plug_in(library: str) -> ctypes.CDLL:
    """Makes the library the process's allocator, before the first tensor is on the device.

    Returns it, for the phase calls.
    """
    memory = torch_npu.npu.memory
    allocator = memory.NPUPluggableAllocator(library, "memory_fragmentation_malloc", "memory_fragmentation_free")
    loaded = ctypes.CDLL(library)
    for setter, name in (("init", "init"), ("reset", "empty_cache"), ("memory_fraction", "memory_fraction")):
        address = ctypes.cast(getattr(loaded, f"memory_fragmentation_{name}"), ctypes.c_void_p).value
        getattr(allocator.allocator(), f"set_{setter}_fn")(address)
    memory.change_current_allocator(allocator)
    return loaded


def _between(function, start, end):
    @functools.wraps(function)
    def wrapped(*words, **named):
        start()
        try:
            return function(*words, **named)
        finally:
            end()

    return wrapped


def hook_setup(feature: ctypes.CDLL, setup):
    """Hooks the construction of model and optimizer, all of which is long-lived.

    An empty window follows, which only counts as the first forward.
    """

    @functools.wraps(setup)
    def wrapped(*words, **named):
        made = _between(setup, feature.precise_match_start, feature.precise_match_end)(*words, **named)
        feature.memory_recorder_start()
        feature.memory_recorder_end()
        return made

    return wrapped


def hook_forward(feature: ctypes.CDLL, module: torch.nn.Module) -> None:
    """Makes each call of the module a window."""
    module.forward = _between(module.forward, feature.memory_recorder_start, feature.memory_recorder_end)


def hook_layers(feature: ctypes.CDLL, model: torch.nn.Module) -> None:
    """Hooks the first generation: every child whose name is a number, so the elements of layer lists."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2].isdigit():
            hook_forward(feature, module)


def hook_step(feature: ctypes.CDLL, train_step):
    """Makes one training step a window."""
    return _between(train_step, feature.malloc_recorder_start, feature.malloc_recorder_end)


def hook_optimizer(feature: ctypes.CDLL, step):
    """Marks tensors as long-lived until the first real step.

    ``step`` returns a tuple that begins with success, as in Megatron.
    """
    is_made = False

    @functools.wraps(step)
    def wrapped(*words, **named):
        nonlocal is_made
        if is_made:
            return step(*words, **named)
        torch.npu.empty_cache()
        done = _between(step, feature.precise_match_start, feature.precise_match_end)(*words, **named)
        is_made = bool(done[0])
        return done

    return wrapped
