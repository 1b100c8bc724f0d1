"""Records the identity of tensors: parameters and buffers by model path, gradients, optimizer state, inputs.

A tensor is identified by the address of its storage at a moment (a mark); the reader finds the allocator's block for
it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable
from typing import Any

from .marks import GRADIENT, INPUT, OPTIMIZER_STATE, PARAMETER, Marks
from .optimizers import existing_optimizers
from .storages import storages_of

# Wrappers that add themselves to the path of every module.
_WRAPPERS = {"module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module", "_forward_module"}
_MOST_INPUTS = 64


def clean(path: str) -> str:
    """Returns a path in a model without the wrappers of DDP, FSDP, torch.compile and checkpointing."""
    parts = path.split(".")
    return ".".join(part for part in parts if part not in _WRAPPERS) or path


class Naming:
    """Known tensors of one process.

    Args:
        torch: The module torch.
        marks: Receives the observations.
        devices: Recorded device types ("cuda").

    Attributes:
        modules: Name number of each module, by ``id``.
    """

    def __init__(self, torch: Any, marks: Marks, devices: tuple[str, ...]) -> None:
        self.devices = devices
        self._torch = torch
        self._marks = marks
        self.modules: dict[int, int] = {}
        self._parameters: dict[int, str] = {}
        self._gradients: dict[int, int] = {}
        self._roots: dict[int, Any] = {}  # weak: must not keep a model alive that the program drops
        self._parts: dict[int, tuple[Any, Any]] = {}  # weak: a part that is called directly, and its model
        self._optimizers: dict[int, tuple[int, int]] = {}  # size of the state, and how often it was seen
        self._observed: dict[int, int] = {}
        self._places: dict[int, list[int]] = {}  # addresses of the first and last parameter of each optimizer
        self._is_first_step = True  # of any optimizer
        self._stepping: Any = None  # weak: the optimizer whose step is running, or was ended by an error

    def _look(self, at: Any, mark: int) -> int:
        """Marks that the tensors of a model or optimizer are recorded, at the time of another mark."""
        return self._marks.look(self._observed.setdefault(id(at), len(self._observed)), mark)

    def module(self, module: Any) -> int:
        """Returns the number of a module's name."""
        number = self.modules.get(id(module))
        if number is None:
            number = self.modules[id(module)] = self._marks.name(type(module).__name__)
        return number

    def root(self, module: Any, args: Any, mark: int) -> None:
        """Learns the names of a model that is called.

        Its parameters are recorded when it is new, its inputs on every call. The result of another model is no input: a
        criterion is a module, and so is the discriminator that gets the images of a generator.
        """
        if id(module) not in self._roots and not self._is_part(module):
            key = id(module)
            self._roots[key] = weakref.ref(module, lambda _: self._roots.pop(key, None))
            for path, part in module.named_modules():
                name = clean(path) if path else type(module).__name__
                self.modules[id(part)] = self._marks.name(name)
            self.look(mark)
        mark = self._look(module, mark)
        for tensor in _tensors(args, _MOST_INPUTS):
            if getattr(tensor, "is_leaf", True):  # objects like tensors may lack it
                self._see(tensor, INPUT, "input of " + type(module).__name__, mark)

    def _is_part(self, module: Any) -> bool:
        """Returns whether a module is a part of a known model, which has named it already.

        A program may call a part directly, for example to generate text.
        """
        part, model = self._parts.get(id(module), (None, None))
        if part is not None and part() is module and model() is not None:
            return True
        for reference in list(self._roots.values()):
            root = reference()
            if root is not None and any(each is module for each in root.modules()):
                self._parts[id(module)] = (weakref.ref(module), reference)
                return True
        return False

    def begin(self, mark: int) -> None:
        """Records all tensors again, since recording begins in the middle of the training."""
        self._optimizers.clear()
        self._is_first_step = True
        self.look(mark)

    def look(self, mark: int) -> None:
        """Records the current addresses of the parameters and buffers of all models."""
        for reference in list(self._roots.values()):
            root = reference()
            if root is None:
                continue
            for path, parameter in root.named_parameters():
                name = clean(path)
                if self._parameters.get(id(parameter)) != name:
                    self._parameters[id(parameter)] = name
                    self._gradients.pop(id(parameter), None)
                self._see(parameter, PARAMETER, name, mark)
            for path, buffer in root.named_buffers():
                self._see(buffer, PARAMETER, clean(path), mark)

    def gradients(self, optimizer: Any, mark: int) -> None:
        """Records the gradients that an optimizer is about to use.

        Usually their addresses are those of the previous step. Other optimizers may step later or rarely, so the first
        step records their gradients as well.
        """
        if self._is_first_step:
            self._is_first_step = False
            for other in existing_optimizers():
                if other is not optimizer:
                    self._gradients_of(other, self._look(other, mark))
        with contextlib.suppress(TypeError):  # an optimizer of another library may have slots
            self._stepping = weakref.ref(optimizer)
        self._follow(optimizer, mark)
        group, mark = id(optimizer), self._look(optimizer, mark)
        gradients = [parameter.grad for part in optimizer.param_groups for parameter in part["params"]]
        addresses = _addresses(gradients)
        if addresses and self._marks.see_again(group, addresses, mark):
            return
        rows = self._gradients_of(optimizer, mark)
        # only if all gradients have plain memory
        if addresses and len(rows) == sum(gradient is not None for gradient in gradients):
            self._marks.remember(group, addresses, rows, mark)

    def _gradients_of(self, optimizer: Any, mark: int) -> list[int]:
        parameters = [parameter for part in optimizer.param_groups for parameter in part["params"]]
        if any(id(parameter) not in self._parameters for parameter in parameters):
            self._meet(optimizer, parameters, mark)
        rows = (self._gradient(parameter, parameter.grad, mark) for parameter in parameters)
        return [row for row in rows if row >= 0]

    def _follow(self, optimizer: Any, mark: int) -> None:
        """Records the parameters of the models again if those of an optimizer are in other memory (``p.data = …``)."""
        groups = [part["params"] for part in optimizer.param_groups if part["params"]]
        places = _addresses([groups[0][0], groups[-1][-1]]) if groups else []
        if self._places.get(id(optimizer)) != places:
            self._places[id(optimizer)] = places
            self.look(mark)

    def _gradient(self, parameter: Any, gradient: Any, mark: int) -> int:
        if gradient is None:
            return -1
        number = self._gradients.get(id(parameter))
        if number is None:
            # A number for each parameter: the parameters of two models may have the same names.
            number = self._gradients[id(parameter)] = self._marks.name_of_one("grad of " + self._name(parameter))
        if type(gradient) is not self._torch.Tensor or gradient.layout is not self._torch.strided:
            self._see(gradient, GRADIENT, self._marks.names[number], mark)
            return -1
        device = gradient.device
        if device.type not in self.devices:
            return -1
        # An address within a bucket works as well as the bucket's: the reader finds the block that contains it.
        return self._marks.see(device.index or 0, gradient.data_ptr(), GRADIENT, number, mark)

    def _meet(self, optimizer: Any, parameters: list[Any], mark: int) -> None:
        """Learns parameters that were in no model when it was first called.

        They were added later, or are plain tensors.
        """
        self.look(mark)
        for number, parameter in enumerate(parameters):
            if id(parameter) not in self._parameters:
                name = self._parameters[id(parameter)] = f"parameter {number} of {type(optimizer).__name__}"
                self._see(parameter, PARAMETER, name, mark)

    def states(self, optimizer: Any, mark: int) -> None:
        """Records the state of an optimizer, if it has grown since the last time."""
        self._stepping = None
        state = optimizer.state
        size = len(state)
        seen = self._optimizers.get(id(optimizer), (-1, 0))
        if seen[0] == size and seen[1] >= 2:  # also the second time: some optimizers create state in two steps
            return
        self._optimizers[id(optimizer)] = (size, seen[1] + 1 if seen[0] == size else 1)
        for parameter, values in state.items():
            if not isinstance(values, dict):
                continue
            of = " of " + self._name(parameter)
            for key, value in values.items():
                for tensor in _tensors((value,), 4):
                    self._see(tensor, OPTIMIZER_STATE, str(key) + of, mark)

    def unfinished_states(self, mark: int) -> None:
        """Records the state of the optimizer whose step ran out of memory, because no hook runs after such a step."""
        optimizer = self._stepping and self._stepping()
        if optimizer is not None:
            self.states(optimizer, mark)

    def _name(self, parameter: Any) -> str:
        name = self._parameters.get(id(parameter))
        return name if name is not None else "a parameter of " + str(tuple(getattr(parameter, "shape", ())))

    def _see(self, tensor: Any, category: int, name: str, mark: int) -> None:
        for kind, number, addr, _ in storages_of(self._torch, tensor):
            if kind in self.devices:
                self._marks.see(number, addr, category, self._marks.name(name), mark)


def _addresses(gradients: list[Any]) -> list[int]:
    """Returns the addresses of gradients (0: none), or nothing if one of them has no plain memory."""
    try:
        return [0 if gradient is None else gradient.data_ptr() for gradient in gradients]
    except (RuntimeError, NotImplementedError):
        return []


def _tensors(values: Iterable[Any], most: int) -> list[Any]:
    """Returns the tensors in nested lists, tuples and dicts, up to a limit."""
    found: list[Any] = []
    rest = list(values)
    looked = 0
    while rest and len(found) < most and looked < 10 * most:
        looked += 1
        value = rest.pop()
        if hasattr(value, "untyped_storage"):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            rest.extend(value[:most])
        elif isinstance(value, dict):
            rest.extend(list(value.values())[:most])
    return found
