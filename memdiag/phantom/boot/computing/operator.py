"""One operator: it runs on the device as usual, and also on the CPU if all its inputs are small and known."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Optional

_IS_TALKATIVE = bool(os.environ.get("MEMDIAG_PHANTOM_TRACE"))
NUMBERS = (int, float, complex)
READ, CHANGED, MADE = 0, 1, 2  # effect on a tensor argument; MADE: its previous content does not matter
_MAKES_FIRST = (
    "fill_",
    "zero_",
    "one_",
    "copy_",
    "uniform_",
    "normal_",
    "random_",
    "bernoulli_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "log_normal_",
)
# Add to beta times their first argument, which may be new memory if beta is 0: the product of a matrix and a vector.
_ADD_TO_SELF = ("addmv", "addmm", "addbmm", "baddbmm")
# The simulated runtime implements these for tensors of almost any size, so its result is kept.
_PRECISE = (
    "fill_",
    "zero_",
    "one_",
    "copy_",
    "constant_pad_nd",
    "clone",
    "_to_copy",
    "contiguous",
    "zeros",
    "ones",
    "full",
    "_amp_",
)
# Changed by some operators although their schemas do not say so.
_HIDDEN = ("running_mean", "running_var")
# PyTorch reads back the number of elements in the middle of these operators, so it is computed before.
_FINDS = ("nonzero", "_unique", "unique_", "masked_select")
_MASKS = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")


class Unknown(Exception):
    """The operator reads an unknown value."""


class ToHost(Exception):
    """A copy to the host, which the simulated runtime makes."""


class TooLarge(Exception):
    """A tensor is too large to be computed."""


_OUTCOMES = {Unknown: "unknown", TooLarge: "large", ToHost: ""}


class Work:
    """One call to compute.

    Attributes:
        args, kwargs: Arguments on the CPU.
        targets: Changed device tensors, with their CPU counterparts.
        changed: Device tensors that are changed in any case.
        seed: Seed for random numbers; None if there are none, -1 if it cannot be computed after all.
        numbers: Indices of the list tensors that are computed; None for all, or without lists.
        experts: Number of experts among which a router chooses; 0 if the operator is no router.
        outcome, why: The result, see ``Tally.end``.
    """

    __slots__ = ("args", "changed", "experts", "kwargs", "numbers", "outcome", "seed", "targets", "why")

    def __init__(self) -> None:
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.targets: list[tuple[Any, Any]] = []
        self.changed: list[Any] = []
        self.seed: Optional[int] = None
        self.numbers: Optional[list[int]] = None
        self.experts = 0
        self.outcome = ""
        self.why = ""


class Operator:
    """A PyTorch operator with its kernel for the device.

    Args:
        machine: The shared state.
        name: "add.Tensor".
        operator: PyTorch's operator object.
        kernel: The device's kernel.
    """

    def __init__(self, machine: Any, name: str, operator: Any, kernel: Any) -> None:
        self.machine = machine
        self.name = name
        self._torch = machine.torch
        self._kernel = kernel
        base = name.partition(".")[0]
        schema = operator._schema
        self._arguments = {argument.name: at for at, argument in enumerate(schema.arguments)}
        self._way = machine.way(base) or operator
        unread = getattr(self._way, "unread", ())
        self._reads = getattr(self._way, "reads", False)
        self._sees_answers = getattr(self._way, "sees_answers", False)
        self.tensors = [  # position, name, effect on it, whether it is read at all
            (at, argument.name, self._fate(base, at, argument), argument.name not in unread)
            for at, argument in enumerate(schema.arguments)
            if "Tensor" in str(argument.type)
        ]
        self._plain = [at for at, argument in enumerate(schema.arguments) if str(argument.type) == "Tensor"]
        self._devices = [
            (at, argument.name) for at, argument in enumerate(schema.arguments) if "Device" in str(argument.type)
        ]
        self._takes_generator = any("Generator" in str(argument.type) for argument in schema.arguments)
        self._is_random = self._takes_generator or machine.torch.Tag.nondeterministic_seeded in operator.tags
        self._is_new = [answer.alias_info is None for answer in schema.returns]
        self.is_precise = base.startswith(_PRECISE)
        has_kernel = machine.torch._C._dispatch_has_computed_kernel_for_dispatch_key
        self._is_lacking = self._way is operator and not has_kernel(f"aten::{name}", "CPU")
        self._finds = base.startswith(_FINDS)
        self._masks = base in _MASKS
        self._adds_to_self = base.rstrip("_") in _ADD_TO_SELF

    @staticmethod
    def _fate(base: str, at: int, argument: Any) -> int:
        if argument.alias_info is not None and argument.alias_info.is_write:
            is_made = argument.is_out or (at == 0 and base in _MAKES_FIRST)
            return MADE if is_made else CHANGED
        return CHANGED if argument.name in _HIDDEN and "backward" not in base else READ

    def kernel(self) -> Callable[..., Any]:
        """Returns the function that PyTorch calls instead of the device's kernel."""
        machine, real, with_tensors = self.machine, self._kernel.call_boxed, self._with_tensors
        begin, end, tally, name = machine.contents.begin, machine.contents.end, machine.tally, self.name

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            given = with_tensors(args)
            if machine.is_idle():
                return real(keyset, *given, **kwargs)
            work, outer = Work(), tally.begin()
            try:
                early = self._prepare(work, given, kwargs)
                is_begun = begin(work.changed, early[0])
                try:
                    result = real(keyset, *given, **kwargs)
                finally:
                    if is_begun:
                        end()
                return self._finish(work, early[1], result)
            finally:
                tally.end(outer, name, work.outcome, work.why)

        return kernel

    def _with_tensors(self, args: Any) -> Any:
        """Converts numbers to tensors where PyTorch passes a number in place of a tensor.

        The kernel receives a tensor of the common result type.
        """
        for at in self._plain:
            if at < len(args) and isinstance(args[at], NUMBERS):
                break
        else:
            return args
        given = list(args)
        other = next((args[at] for at in self._plain if at < len(args) and not isinstance(args[at], NUMBERS)), None)
        for at in self._plain:
            if at < len(args) and isinstance(args[at], NUMBERS):
                dtype = None if other is None else self._torch.result_type(other, args[at])
                given[at] = self._torch.scalar_tensor(args[at], dtype=dtype, device="cpu")
        return given

    # ----------------------------------------------------------------------------------------- before the operator runs

    def _prepare(self, work: Work, args: Any, kwargs: Any) -> tuple[int, Any]:
        """Copies the inputs of the operator.

        Returns values computed before the kernel: the number of elements, and the results.
        """
        early: tuple[int, Any] = (-1, None)
        try:
            with self.machine.alone():
                if self._masks:
                    early = self._masked(args), None
                self._look(work, args, kwargs)
                if self._finds:
                    early = self._found(work)
        except Exception as error:  # noqa: BLE001 - the program continues
            self._note(work, error)
            work.args = []
            work.targets = []
            work.seed = -1
        return early

    def _found(self, work: Work) -> tuple[int, Any]:
        sizes = [value.shape for value in work.args if hasattr(value, "shape")]
        if not self.machine.contents.fits(
            self._torch.broadcast_shapes(*sizes[:2]) if self.name.startswith("masked") else (), 8
        ):
            raise TooLarge
        results = self._compute(work)
        first = results[0] if isinstance(results, tuple) else results
        at = self._arguments.get("dim", -1)
        dimension = work.args[at] if 0 <= at < len(work.args) else work.kwargs.get("dim")
        return int(first.shape[dimension or 0]), results

    def _masked(self, args: Any) -> int:
        """Returns how many elements a mask as an index selects; -1 without one, or if it is unknown.

        The tensor that the mask indexes may be unknown.
        """
        kinds = (self._torch.bool, self._torch.uint8)
        masks = [index for index in args[1] if index is not None and index.dtype in kinds] if len(args) > 1 else []
        if not masks or not self.machine.contents.is_small(masks[0]):
            return -1
        mask = self.machine.contents.read(masks[0]) if masks[0].device.type != "cpu" else masks[0]
        return -1 if mask is None else int(mask.count_nonzero())

    def _look(self, work: Work, args: Any, kwargs: Any) -> None:
        """Fills in the work; raises if it cannot be computed, after all changed tensors have been noted."""
        given = {
            at: value
            for at, name, *_ in self.tensors
            if (value := args[at] if at < len(args) else kwargs.get(name)) is not None
        }
        self._check(work, given)
        work.args, work.kwargs = list(args), dict(kwargs)
        for at, name, fate, is_read in self.tensors:
            if not is_read or at not in given:
                continue
            value = given[at]
            if self._adds_to_self and at == 0 and kwargs.get("beta", 1) == 0 and fate == CHANGED:
                fate = MADE
            copy = (
                [self._copy(work, one, fate) for one in value]
                if isinstance(value, (list, tuple))
                else self._copy(work, value, fate)
            )
            self._put(work, at, name, copy, args)
        for at, name in self._devices:
            if at < len(args) or name in kwargs:
                self._put(work, at, name, self._torch.device("cpu"), args)
        if self._is_random:
            self._draw(work, args, kwargs)

    def _check(self, work: Work, given: dict[int, Any]) -> None:
        """Notes changed tensors; raises if a tensor is too large or not plain."""
        why: Optional[type[Exception]] = None  # keeping the exception would keep the frame, and with it all tensors
        for at, _, fate, is_read in self.tensors:
            value = given.get(at)
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if tensor is None or isinstance(tensor, NUMBERS):
                    continue
                if tensor.layout is not self._torch.strided:
                    why = Unknown
                elif fate != READ and tensor.device.type != "cpu":
                    work.changed.append(tensor)
                if is_read and not self.machine.contents.is_small(tensor):
                    why = why or TooLarge
        if why is not None:
            raise why
        if self._is_lacking:
            raise NotImplementedError("the CPU has no such operator")

    @staticmethod
    def _put(work: Work, at: int, name: str, value: Any, args: Any) -> None:
        if at < len(args):
            work.args[at] = value
        else:
            work.kwargs[name] = value

    def _copy(self, work: Work, tensor: Any, fate: int) -> Any:
        """Returns a tensor's copy on the CPU; other values are returned unchanged."""
        if tensor is None or isinstance(tensor, NUMBERS):
            return tensor
        if tensor.device.type == "cpu":
            if fate != READ:
                raise ToHost
            return tensor
        if fate == MADE:
            copy = self._torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu")
        else:
            copy = self.machine.contents.read(tensor)
            if copy is None:
                raise Unknown
        if fate != READ:
            work.targets.append((tensor, copy))
        return copy

    def _read(self, tensor: Any) -> Any:
        if not self.machine.contents.is_small(tensor):
            raise TooLarge
        return self._copy(Work(), tensor, READ)

    def _draw(self, work: Work, args: Any, kwargs: Any) -> None:
        """Chooses the seed, which depends on the current position of the device's generator."""
        at = self._arguments.get("generator", len(args))
        generator = args[at] if at < len(args) else kwargs.get("generator")
        tensors = [
            value
            for value in (*args, *kwargs.values())
            if hasattr(value, "device") and value.device.type == self.machine.device
        ]
        work.seed = self.machine.chance.place(generator, tensors[0].device.index or 0 if tensors else 0)
        if self._takes_generator:
            mine = self.machine.chance.generator(work.seed)
            self._put(work, at, "generator", mine, args)

    # ------------------------------------------------------------------------------------------- after the operator ran

    def _finish(self, work: Work, results: Any, real: Any) -> Any:
        """Computes, and stores the results as the device's. Returns the value for the program."""
        contents = self.machine.contents
        if work.seed == -1:  # not to be computed
            if not self.is_precise:
                self._forget(work)
            return real
        try:
            with self.machine.alone():
                answers = self._wanted(work, real if isinstance(real, (list, tuple)) else (real,))
                made = [tensor for tensor, _ in work.targets]  # its memory may have been allocated only now
                if not all(contents.is_small(answer) for answer in (*answers, *made) if hasattr(answer, "numel")):
                    raise TooLarge
                results = self._compute(work, answers) if results is None else results
                self._store(work, results, answers)
                work.outcome = "computed" if work.numbers is None else "partly"
                if not any(hasattr(answer, "numel") for answer in answers) and not work.targets and real is not None:
                    return results  # an answer, such as that of equal()
        except Exception as error:  # noqa: BLE001 - the program continues
            self._note(work, error)
            if not self.is_precise:
                self._forget(work)
        return real

    def _wanted(self, work: Work, answers: Any) -> Any:  # noqa: ARG002 - of lists, only some tensors
        return answers

    def _compute(self, work: Work, answers: Any = ()) -> Any:
        if self._sees_answers:
            work.kwargs["answers"] = answers
        if self._reads:
            work.kwargs["read"] = self._read
        if work.seed is None or self._takes_generator:
            return self._way(*work.args, **work.kwargs)
        with self.machine.chance.instead(work.seed):
            return self._way(*work.args, **work.kwargs)

    def _store(self, work: Work, results: Any, answers: Any) -> None:
        contents = self.machine.contents
        for tensor, value in work.targets:
            if not contents.write(tensor, value):
                raise ValueError(f"{tuple(value.size())} in place of {tuple(tensor.size())}")
        given = results if isinstance(results, (list, tuple)) else (results,)
        is_new = self._is_new if len(self._is_new) == len(answers) else [True] * len(answers)
        for answer, value, new in zip(answers, given, is_new):
            if not new or value is None or not hasattr(answer, "numel") or answer.device.type == "cpu":
                continue
            if self._finds and not answer.numel():  # the CPU also returns what the program did not ask for
                continue
            if not contents.write(answer, value):
                raise ValueError(f"{tuple(value.size())} in place of {tuple(answer.size())}")

    def _forget(self, work: Work) -> None:
        try:
            with self.machine.alone():
                for tensor in work.changed:
                    self.machine.contents.forget(tensor)
        except Exception as error:  # noqa: BLE001 - the program continues
            self._note(work, error)

    def _note(self, work: Work, error: Exception) -> None:
        work.outcome = _OUTCOMES.get(type(error), "failed")
        if work.outcome == "failed":
            # not the exception itself, which would keep the tensors of its call alive
            work.why = str(error) or type(error).__name__
        if _IS_TALKATIVE and work.outcome:
            sys.stderr.write(f"memdiag: not computed: {self.name}: {type(error).__name__} {str(error)[:200]}\n")
