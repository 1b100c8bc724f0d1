"""Refuses inductor, the default backend of torch.compile, on a simulated NPU.

Its kernels need CANN's compiler, which is missing. Otherwise the program would end with the first error in torch_npu.
This is an assertion of PyTorch's without triton-ascend, or ``'function' object has no attribute 'cache_clear'``, since
torch_npu's transfer_to_npu puts a plain function where its inductor expects a cached one. Other backends (aot_eager,
eager) need no compiler, and graphs without a tensor on the NPU are compiled as usual.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_WHAT, _WHOSE = b"inductor, torch.compile's default", b"CANN's compiler"
_WAYS = (
    "the phantom NPU cannot imitate what inductor, the default backend of torch.compile, makes of a program: "
    "its kernels come from CANN's compiler. Run with TORCH_COMPILE_DISABLE=1, which leaves the program as it is, "
    "uncompiled; "
    'or choose torch.compile(backend="aot_eager"), which keeps for backward what AOTAutograd keeps, without fusing '
    "anything"
)


def begin(torch: Any) -> None:
    """Wraps the function that passes graphs to inductor; called once torch_npu is imported, which wraps it as well."""
    wrapper = getattr(torch, "_TorchCompileInductorWrapper", None)
    if wrapper is None:
        return
    original = wrapper.__call__

    @functools.wraps(original)
    def compile_or_refuse(self: Any, model: Any, inputs: Any) -> Any:
        if _is_for_npu(model, inputs):
            _keep_in_mind()
            raise RuntimeError(_WAYS)
        return original(self, model, inputs)

    wrapper.__call__ = compile_or_refuse


def _is_for_npu(model: Any, inputs: Any) -> bool:
    """Returns whether a graph reads, holds or creates a tensor on the NPU."""
    held = [*inputs, *getattr(model, "parameters", list)(), *getattr(model, "buffers", list)()]
    made = [node.kwargs.get("device") for node in getattr(getattr(model, "graph", None), "nodes", ())]
    devices = [getattr(one, "device", None) for one in held] + made
    return any(str(device).partition(":")[0] == "npu" for device in devices if device is not None)


def _keep_in_mind() -> None:
    """Makes the simulated runtime report it on stderr, once, and list it among the refused calls."""
    try:
        ctypes.CDLL(None).memdiag_phantom_refuse(_WHAT, _WHOSE)
    except AttributeError:  # no simulated runtime in this process: a child that was started without it
        return
