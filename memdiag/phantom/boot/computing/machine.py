"""Wraps the operators of a device, and holds their shared state."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from . import ways_npu
from .by_default import LIMIT_BYTES, DefaultListOperator, DefaultOperator, is_by_default
from .chance import Chance
from .contents import Contents
from .experts import INTEGER_BYTES, Router, assumed
from .lists import ListOperator, is_by_lists
from .operator import Operator
from .tally import Tally
from .ways import WAYS

_INTEGERS = "MEMDIAG_PHANTOM_INTEGERS"  # the largest tensor of integers or booleans that is computed, in bytes
# These compute nothing: they allocate memory, or create views; and their results are read anyway.
_IDLE = (
    "empty",
    "new_empty",
    "_empty",
    "resize",
    "_resize",
    "set_",
    "record_stream",
    "_local_scalar_dense",
    "is_set_to",
    "_pin_memory",
    "is_pinned",
    "_to_sparse",
    "_sparse",
    "_coalesce",
    "_reshape_alias",
    "_nested",
    "_fft_",
    "_cufft",
    "as_strided",
    "_conj",
    "unfold",
    "_has_",
    "_fw",
    "_make_dual",
    "_cudnn_init",
    "_amp_init",
    # The kernel of pow.Scalar calls it with a number on the device, which PyTorch cannot pass to Python.
    "pow.Tensor_Tensor_out",
)
# Keyed by whether only the operators of ``by_default`` are computed, and whether the operator has a list of tensors.
_KINDS: dict[tuple[bool, bool], type[Operator]] = {
    (False, False): Operator,
    (False, True): ListOperator,
    (True, False): DefaultOperator,
    (True, True): DefaultListOperator,
}
# Composed of other operators for every device; wrapped, since the device decomposes them differently.
_ALSO = (
    "copy_",
    "convolution",
    "convolution_backward",
    # torch_npu has no kernels for these, and calls those of the CPU.
    "linalg_cholesky_ex.L",
    "linalg_inv_ex.inverse",
    "linalg_ldl_factor_ex.out",
    "linalg_lu_factor_ex.out",
    "_linalg_solve_ex.result",
)


class Machine:
    """The state of one process.

    Args:
        torch: The module.
        key: The device's dispatch key.
        limit_bytes: The largest tensor that is computed.
        is_default: Whether only the operators of ``by_default`` are computed.

    Attributes:
        torch, tally, is_default: As passed in.
        contents: Contents of the device.
        chance: Source of random numbers.
        experts: The assumed load of experts, or None.
        is_single_threaded: Whether one thread computes all tensors.
        device: "cuda" or "npu".
        here: What this thread does; ``is_computing`` while the CPU computes.
    """

    def __init__(self, torch: Any, key: str, limit_bytes: int, *, is_default: bool = False) -> None:
        self.torch = torch
        self.is_default = is_default
        self.device = "cuda" if key == "CUDA" else "npu"
        self.tally = Tally(limit_bytes)
        self.experts = assumed(torch)
        integer_bytes = int(os.environ.get(_INTEGERS) or 0)
        self.contents = Contents(torch, limit_bytes, max(integer_bytes, INTEGER_BYTES if self.experts else 0))
        # OpenMP's threads wait for each other. On a machine with other work, such as the program's data loaders, that
        # takes a thousand times longer than computing a small tensor with one thread.
        self.is_single_threaded = max(limit_bytes, integer_bytes) <= LIMIT_BYTES
        self.chance = Chance(torch, self.device)
        self._key = key
        self._libraries: dict[str, Any] = {}
        keys = torch._C.DispatchKey
        self.here = threading.local()
        self.no_autocast = torch._C.DispatchKeySet(getattr(keys, f"Autocast{key}"))
        self._is_capturing = (
            torch._C._cuda_isCurrentStreamCapturing
            if key == "CUDA"
            else sys.modules["torch_npu"]._C._npu_isCurrentStreamCapturing
        )

    def begin(self) -> None:
        """Wraps all operators that PyTorch has for the device."""
        capi, key = self.torch._C, getattr(self.torch._C.DispatchKey, self._key)
        self._libraries = {
            space: self.torch.library.Library(space, "IMPL") for space in ("aten", *ways_npu.SPACES[self.device])
        }
        also = [f"aten::{name}" for name in _ALSO]
        names = dict.fromkeys([*capi._dispatch_get_registrations_for_dispatch_key(self._key), *also])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about overridden kernels
            for name in names:
                space, _, short = name.partition("::")
                if space == "aten" or (space in self._libraries and short in WAYS):
                    self._wrap(space, short, partial(capi._dispatch_get_computed_kernel_for_dispatch_key, name, key))
        self._hide_from_the_compiler()

    def _wrap(self, space: str, name: str, kernel: Callable[[], Any]) -> None:
        if name.startswith(_IDLE) or (self.is_default and not is_by_default(name)):
            return
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(getattr(self.torch.ops, space), packet, None), overload or "default", None)
        if operator is None:
            return  # a kernel without an operator: for another version of PyTorch
        if any(answer.alias_info is not None and not answer.alias_info.is_write for answer in operator._schema.returns):
            return  # a view
        kind = _KINDS[self.is_default, is_by_lists(name, operator)]
        made = (Router if self.experts and name == "topk" else kind)(self, name, operator, kernel())
        self._libraries[space].impl(name, made.kernel(), self._key, with_keyset=True)
        if name in ways_npu.BEFORE_AUTOGRAD[self.device]:
            self._libraries[space].impl(name, made.kernel(), f"Autograd{self._key}", with_keyset=True)

    def _hide_from_the_compiler(self) -> None:
        """Keeps torch.compile from compiling these functions together with the program."""
        skip = getattr(self.torch._C._dynamo.eval_frame, "skip_code", None)
        package = __name__.rpartition(".")[0]
        for module in [module for name, module in list(sys.modules.items()) if name.startswith(package)]:
            for code in _codes(list(vars(module).values()), module.__name__):
                if skip is not None:
                    skip(code)

    # ------------------------------------------------------------------------------------- while an operator is at work

    def is_idle(self) -> bool:
        """Returns whether computing is impossible now: captured operators run only with their graph.

        Raises:
            RuntimeError: It is called by the computation itself, which must not use the device.
        """
        if getattr(self.here, "is_computing", False):
            raise RuntimeError("computing it uses the device")
        return bool(self._is_capturing())

    def alone(self) -> Any:
        """Returns a context in which the CPU computes without autograd, autocast and the program's defaults."""
        return _Alone(self)

    def way(self, name: str) -> Any:
        """Returns the CPU implementation of a device-specific operator, or None if PyTorch has one."""
        return WAYS.get(name)


class _Alone:
    def __init__(self, machine: Machine) -> None:
        capi = machine.torch._C
        self._here = machine.here
        self._torch, self._is_single_threaded = machine.torch, machine.is_single_threaded
        self._num_threads = 1
        self._guards = (
            capi.DisableTorchFunction(),
            capi._AutoDispatchBelowAutograd(),
            capi._ExcludeDispatchKeyGuard(machine.no_autocast),
        )

    def __enter__(self) -> None:
        self._here.is_computing = True
        if self._is_single_threaded and (num_threads := self._torch.get_num_threads()) > 1:
            self._num_threads = num_threads
            self._torch.set_num_threads(1)
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *why: object) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(*why)
        if self._num_threads > 1:
            self._torch.set_num_threads(self._num_threads)
        self._here.is_computing = False


def _codes(values: list[Any], module: str) -> list[Any]:
    """Returns the code objects of a module's functions, of its classes and of nested functions."""
    found, seen = [], set()
    while values:
        value = values.pop()
        if isinstance(value, type) and value.__module__ == module:
            values.extend(vars(value).values())
        value = getattr(value, "__wrapped__", value)
        code = getattr(getattr(value, "__func__", value), "__code__", value)
        if hasattr(code, "co_consts") and code not in seen:
            seen.add(code)
            found.append(code)
            values.extend(code.co_consts)
    return found
