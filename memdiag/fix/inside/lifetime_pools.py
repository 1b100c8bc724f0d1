"""Turns on the lifetime-segregated pools of MindSpeed, and leaves room for HCCL."""

import functools
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_SWITCH = "--memory-fragmentation"  # MindSpeed from 1.0.RC2 on; before, the environment variable
_EXCLUDED = {
    "--adaptive-memory-optimization",
    "--adaptive-recompute-device-swap",
    "--smart-swap",
    "--use-fused-rotary-pos-emb",
}
_PAUSE = 0.01  # seconds between two measurements


def lifetime_pools(fraction, refuse=None, measure=None):
    """Sets MindSpeed's switch before MindSpeed reads it, and the memory fraction at the first forward.

    Args:
        fraction: Per-process memory fraction, which leaves room for HCCL.
        refuse: Called with the reason "pools" and the option or setting that MindSpeed forbids together with the pools.
        measure: Called with the used bytes of the device whenever they have grown.
    """
    forbidden = next((word for word in sys.argv if word.replace("_", "-") in _EXCLUDED), None)
    if "expandable_segments:true" in os.environ.get("PYTORCH_NPU_ALLOC_CONF", "").replace(" ", "").lower():
        forbidden = "expandable_segments:True"
    if forbidden is not None:
        if refuse is not None:
            refuse("pools", forbidden)
        return
    os.environ["MEMORY_FRAGMENTATION"] = "1"
    if _has_argument() and _SWITCH not in sys.argv:
        sys.argv.append(_SWITCH)

    def limit(*_):
        torch.npu.set_per_process_memory_fraction(fraction)
        hook.remove()

    hook = torch.nn.modules.module.register_module_forward_pre_hook(limit)
    if measure is not None:
        _measure(measure)


def _has_argument():
    """Returns whether the arguments of the installed MindSpeed include the switch."""
    spec = find_spec("mindspeed")
    for folder in map(Path, spec.submodule_search_locations or () if spec else ()):
        for file in (folder / "arguments.py", *sorted(folder.glob("features_manager/**/*.py"))):
            if file.is_file() and _SWITCH in file.read_text(encoding="utf-8", errors="replace"):
                return True
    return False


def _measure(measure):
    """Reports the used memory of the device: an allocator that is plugged in need not have statistics."""
    highest = last = 0

    def look():
        nonlocal highest, last
        free, total = torch.npu.mem_get_info()
        last = time.monotonic()
        if total - free > highest:
            highest = total - free
            measure(highest)

    def after(*_):
        if time.monotonic() - last >= _PAUSE:
            look()

    backward = torch.autograd.backward

    @functools.wraps(backward)
    def watched(tensors, *args, **kwargs):
        roots = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        for node in _nodes([root.grad_fn for root in roots if getattr(root, "grad_fn", None) is not None]):
            node.register_hook(lambda *_: look())  # what an operator reserves may be released a few operators later
        return backward(tensors, *args, **kwargs)

    torch.autograd.backward = watched
    empty_cache = torch.npu.empty_cache

    @functools.wraps(empty_cache)
    def emptied():
        look()  # MindSpeed's hook releases what backward used before it calls the first optimizer step
        empty_cache()

    torch.npu.empty_cache = emptied
    torch.nn.modules.module.register_module_forward_hook(after)
    register_optimizer_step_pre_hook(lambda *_: look())
    register_optimizer_step_post_hook(lambda *_: look())


def _nodes(waiting):
    """Yields the nodes of a graph of autograd, each once."""
    seen = set()
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting.extend(following for following, _ in node.next_functions if following is not None)
