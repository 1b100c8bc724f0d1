"""The operators that are computed without ``--compute``: those that make indices, masks, lengths and counters.

Programs read such values back even if they train a large model: the lengths of a batch, a mask of padding, the steps of
a solver. They depend only on data from the host and on operators such as ``arange``, and not on the layers of a model,
which are not computed. Operators of layers are not wrapped, because that would slow down training: each call through
Python takes several microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .operator import MADE, NUMBERS, Operator

LIMIT_BYTES = 1 << 20
_FACTORIES = "arange range linspace logspace eye tril_indices triu_indices randperm randint random"
_CONDITIONS = (
    "eq ne lt le gt ge isnan isinf isposinf isneginf isin logical_and logical_or logical_xor logical_not any all equal"
    " bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift is_nonzero signbit"
)
_SEARCHES = (
    "nonzero count_nonzero _unique _unique2 unique_dim unique_consecutive masked_select bucketize searchsorted bincount"
    " argmax argmin max min amax amin aminmax sort argsort topk kthvalue mode"
)
_ARITHMETIC = (
    "add sub rsub mul div floor_divide remainder fmod pow neg abs sign sgn reciprocal sqrt floor ceil round trunc clamp"
    " clamp_min clamp_max maximum minimum fmax fmin where masked_fill sum prod mean cumsum cumprod cummax cummin diff"
    " exp log gcd lcm"
)
_MOVES = (
    "copy_ cat stack index index_select index_put _index_put_impl_ _unsafe_index index_fill index_add index_copy gather"
    " scatter scatter_add scatter_reduce take tril triu flip roll repeat_interleave masked_scatter one_hot"
)
_NAMES = frozenset(f"{_FACTORIES} {_CONDITIONS} {_SEARCHES} {_ARITHMETIC} {_MOVES}".split())


def is_by_default(name: str) -> bool:
    """Returns whether an operator, such as "add_.Tensor", is computed without ``--compute``."""
    base = name.partition(".")[0]
    return base in _NAMES or base.rstrip("_") in _NAMES


class DefaultOperator(Operator):
    """Runs on the device alone, unless it makes a tensor, or all tensors that it reads are small and known."""

    def kernel(self) -> Callable[..., Any]:
        """Returns the function that PyTorch calls instead of the device's kernel."""
        real, whole, is_known = self._kernel.call_boxed, super().kernel(), self._gate()
        here, with_numbers, plain = self.machine.here, self._with_numbers_as_tensors, self._plain
        is_plain = self.machine.torch._C.DisableTorchFunction

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            with is_plain():
                is_computed = is_known(args, kwargs)
            if is_computed or getattr(here, "is_computing", False):
                return whole(keyset, *args, **kwargs)
            for at in plain:
                if at < len(args) and isinstance(args[at], NUMBERS):
                    return real(keyset, *with_numbers(args), **kwargs)
            return real(keyset, *args, **kwargs)

        return kernel

    def _gate(self) -> Callable[[Any, Any], bool]:
        """Returns the function that decides whether all tensors that a call reads may be small and known."""
        may_be_known = self.machine.contents.may_be_known
        read = [(at, name, fate == MADE) for at, name, fate, is_read in self.tensors if is_read]
        is_copy = self.name == "copy_"  # the simulated runtime copies what the host has

        def is_known(args: Any, kwargs: Any) -> bool:
            count = len(args)
            for at, name, is_made in read:
                value = args[at] if at < count else kwargs.get(name)
                if value is None or isinstance(value, NUMBERS):
                    continue
                for tensor in value if isinstance(value, (list, tuple)) else (value,):
                    if tensor is not None and not may_be_known(tensor, is_made):
                        return False
            return not is_copy or not args[1].is_cpu

        return is_known
