"""The operators that are computed without ``--compute``: those that make indices, masks, lengths and counters.

Programs read such values back even if they train a large model: the lengths of a batch, a mask of padding, the steps of
a solver. They depend only on data from the host and on operators such as ``arange``, and not on the layers of a model,
which are not computed. Operators of layers are not wrapped, because that would slow down training: each call through
Python takes several microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .lists import ListOperator
from .operator import MADE, NUMBERS, READ, Operator, Work

LIMIT_BYTES = 1 << 20
_FACTORIES = "arange range linspace logspace eye tril_indices triu_indices randperm random"
_CONDITIONS = (
    "eq ne lt le gt ge isnan isposinf isneginf isin logical_and logical_or logical_xor logical_not any all equal"
    " bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift signbit"
)
_SEARCHES = (
    "nonzero count_nonzero _unique _unique2 unique_dim unique_consecutive masked_select bucketize searchsorted bincount"
    " argmax argmin max min amax amin aminmax sort argsort topk kthvalue mode"
)
_ARITHMETIC = (
    "add sub rsub mul div floor_divide remainder fmod pow neg abs sign sgn reciprocal sqrt floor ceil round trunc clamp"
    " clamp_min clamp_max maximum minimum fmax fmin where masked_fill sum prod mean cumsum cumprod"
    " exp log gcd lcm"
)
_MOVES = (
    "copy_ cat stack index index_select index_put _index_put_impl_ index_fill index_add index_copy gather"
    " scatter scatter_add scatter_reduce take tril triu flip roll repeat_interleave masked_scatter one_hot"
)
# Counts the steps of an optimizer whose state is on the device, for example because a checkpoint was loaded to it.
_COUNTERS = frozenset(["_foreach_add_.Scalar"])
# One of the results of these says if the operator failed. If the matrix is unknown, so is this result, even if the CPU
# computes it in place of the device (torch_npu).
_CHECKED = ["linalg_cholesky_ex", "linalg_inv_ex", "linalg_ldl_factor_ex", "linalg_lu_factor_ex", "_linalg_solve_ex"]
# The names of these kernels do not show which parameters they write, so the runtime gets a list of the tensors.
_MARKED = frozenset([*f"{_SEARCHES} {_MOVES}".split(), *_CHECKED]) - {"cat", "copy_"}
_NAMES = frozenset([*f"{_FACTORIES} {_CONDITIONS} {_SEARCHES} {_ARITHMETIC} {_MOVES}".split(), *_CHECKED])


def is_by_default(name: str) -> bool:
    """Returns whether an operator, such as "add_.Tensor", is computed without ``--compute``."""
    base = name.partition(".")[0]
    return name in _COUNTERS or base in _NAMES or base.rstrip("_") in _NAMES


class DefaultOperator(Operator):
    """Runs on the device alone, unless it makes a tensor, or all tensors that it reads are small and known."""

    def kernel(self) -> Callable[..., Any]:
        """Returns the function that PyTorch calls instead of the device's kernel."""
        real, whole, is_known = self._kernel.call_boxed, super().kernel(), self._gate()
        begin, end = self.machine.contents.begin, self.machine.contents.end
        here, with_tensors, is_plain = self.machine.here, self._with_tensors, self.machine.torch._C.DisableTorchFunction
        base = self.name.partition(".")[0]
        is_marked, is_checked = base.rstrip("_") in _MARKED, base in _CHECKED

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            with is_plain():
                is_computed = is_known(args, kwargs)
            if is_computed or getattr(here, "is_computing", False):
                return whole(keyset, *args, **kwargs)
            given = with_tensors(args)
            if not is_marked:
                return real(keyset, *given, **kwargs)
            work = Work()
            work.changed = self._written(args, kwargs)
            is_begun = begin(work.changed, -1)
            try:
                result = real(keyset, *given, **kwargs)
            finally:
                if is_begun:
                    end()
            if is_checked:
                self._forget(work)
            return result

        return kernel

    def _written(self, args: Any, kwargs: Any) -> list[Any]:
        """Returns the tensors on the device that a call writes."""
        given = (args[at] if at < len(args) else kwargs.get(name) for at, name, fate, _ in self.tensors if fate != READ)
        tensors = (one for value in given for one in (value if isinstance(value, (list, tuple)) else (value,)))
        return [tensor for tensor in tensors if tensor is not None and not tensor.is_cpu]

    def _gate(self) -> Callable[[Any, Any], bool]:
        """Returns the function that decides whether all tensors that a call reads may be small and known."""
        may_be_known = self.machine.contents.may_be_known
        read = [(at, name, fate == MADE) for at, name, fate, is_read in self.tensors if is_read]
        is_copy = self.name == "copy_"  # the simulated runtime itself copies data of the host

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


class DefaultListOperator(DefaultOperator, ListOperator):
    """The same for an operator on a list of tensors."""
