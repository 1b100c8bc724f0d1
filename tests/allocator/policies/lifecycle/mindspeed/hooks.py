"""MindSpeed's Python side: plugs the allocator into torch_npu and calls it where the training enters and leaves its phases.

Which functions are wrapped, and when, is section 3 of the feature's specification; upstream wraps those of Megatron, a
program of another kind wraps its own with the same functions.
"""

import ctypes
import functools

import torch
import torch_npu


def plug_in(library: str) -> ctypes.CDLL:
    """Makes the library the process's allocator; before the first tensor is on the device.

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
    """The making of model and optimizer: all of it is long.

    Then a window of nothing, which only counts as the first forward.
    """

    @functools.wraps(setup)
    def wrapped(*words, **named):
        made = _between(setup, feature.precise_match_start, feature.precise_match_end)(*words, **named)
        feature.memory_recorder_start()
        feature.memory_recorder_end()
        return made

    return wrapped


def hook_forward(feature: ctypes.CDLL, module: torch.nn.Module) -> None:
    """Each call of the module is a window."""
    module.forward = _between(module.forward, feature.memory_recorder_start, feature.memory_recorder_end)


def hook_layers(feature: ctypes.CDLL, model: torch.nn.Module) -> None:
    """The first generation: every child whose name is a number, so the elements of lists of layers."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2].isdigit():
            hook_forward(feature, module)


def hook_step(feature: ctypes.CDLL, train_step):
    """One step of training is a window."""
    return _between(train_step, feature.malloc_recorder_start, feature.malloc_recorder_end)


def hook_optimizer(feature: ctypes.CDLL, step):
    """Until the first step that is one, its tensors are long; ``step`` returns a tuple that begins with success, as Megatron's does."""
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
