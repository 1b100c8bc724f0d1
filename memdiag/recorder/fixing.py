"""Applies remedies to a program that ``memdiag fix`` runs, and notes its losses and what its modules return.

The remedies are files outside the recorder, named by an environment variable: see ``memdiag/fix/inside``.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from .call_sites import calling_line
from .config import FIX_VARIABLE
from .guard import report
from .storages import storages_of, with_memory

_LIBRARIES = ("bitsandbytes", "mindspeed")
_POOLS = ("core", "memory", "memory_fragmentation")  # in MindSpeed up to core_r0.9
_MOST_SIZES = 64  # of the inputs of one module, as with texts of different length
_SMALL = 1 / 16  # share of the largest returned tensor up to which the others do not count


def imported(module: Any) -> None:
    """Applies the remedies; called when the program has imported torch."""
    text = os.environ.get(FIX_VARIABLE, "")
    if not text or module.__name__ != "torch":
        return
    instructions = json.loads(text)
    for name, settings in instructions.get("remedies") or ():
        try:
            function = _function(instructions["folder"], name)
            if "refuse" in function.__code__.co_varnames[: function.__code__.co_argcount]:
                settings = {**settings, "refuse": _refusing(instructions.get("refused"), name)}
            if "measure" in function.__code__.co_varnames[: function.__code__.co_argcount]:
                settings = {**settings, "measure": _measuring(instructions.get("measured"))}
            function(**settings)
        except Exception as error:  # noqa: BLE001 - the program must continue whatever happens here
            report(f"remedy {name}", error)
    if instructions.get("losses"):
        _note_losses(module, instructions["losses"])
    if instructions.get("outputs"):
        _note_outputs(module, instructions["outputs"])
    if instructions.get("facts"):
        _note_facts(module, instructions["facts"])
        _note_inputs(module, instructions["facts"])
        _note_results(module, instructions["facts"])
        _note_calls(module)


def _function(folder: str, name: str) -> Any:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"memdiag_inside_{name}", os.path.join(folder, f"{name}.py"))
    module = module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules[spec.name] = module  # type: ignore[union-attr]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return getattr(module, name)


def _refusing(folder: str | None, name: str) -> Any:
    """Returns a function that notes a module which a remedy leaves alone: its file, the reason, and the module."""

    def refuse(reason: str, module: str) -> None:
        try:
            if folder is not None:
                with open(_own_file(folder), "a", encoding="utf-8") as file:
                    file.write(f"{name}\t{reason}\t{module}\n")
        except Exception as error:  # noqa: BLE001 - see imported()
            report("refusal", error)

    return refuse


def _measuring(folder: str | None) -> Any:
    """Returns a function that notes used bytes of the device, or None without a folder."""
    if folder is None:
        return None

    def measure(used: int) -> None:
        try:
            with open(_own_file(folder), "a", encoding="ascii") as file:
                file.write(f"{used}\n")
        except Exception as error:  # noqa: BLE001 - see imported()
            report("measurement", error)

    return measure


def _own_file(folder: str) -> str:
    return os.path.join(folder, f"{os.environ.get('RANK', '0')}-{os.getpid()}.txt")


def _note_losses(torch: Any, folder: str) -> None:
    """Writes the value of every scalar that the program calls backward on, and the time, to a file of this process."""
    original = torch.autograd.backward
    path = _own_file(folder)

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            first = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
            if first.numel() == 1:
                value = float(first.detach())  # waits for the device, so the time includes its work
                with open(path, "a", encoding="ascii") as file:
                    file.write(f"{value:.17g} {time.perf_counter_ns()}\n")
        except Exception as error:  # noqa: BLE001 - see imported()
            report("loss", error)
        return original(tensors, *args, **kwargs)

    torch.autograd.backward = backward


def _note_outputs(torch: Any, folder: str) -> None:
    """Writes the paths of the modules that return several tensors with gradients to a file of this process."""
    path, seen = _own_file(folder), set()
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)  # since torch 2.1

    def after(module: Any, args: Any, output: Any) -> None:  # noqa: ARG001
        if compiling() or isinstance(output, torch.Tensor) or id(module) in seen:
            return
        try:
            parts = [part for each in _trained(torch, output) for part in with_memory(torch, each)]
            sizes = {each.data_ptr(): each.numel() * each.element_size() for each in parts}
            rest = sum(sizes.values()) - max(sizes.values(), default=0)
            name = _name_of(module)
            if name and rest > _SMALL * max(sizes.values(), default=0):
                seen.add(id(module))
                with open(path, "a", encoding="utf-8") as file:
                    file.write(f"{name}\n")
        except Exception as error:  # noqa: BLE001 - see imported()
            report("outputs", error)

    torch.nn.modules.module.register_module_forward_hook(after)


def _note_facts(torch: Any, folder: str) -> None:
    """Writes facts about this process to a file: a library that it can import, and bytes per element of states."""
    path, seen = _own_file(folder), set()

    def note(fact: str) -> None:
        if fact not in seen:
            seen.add(fact)
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{fact}\n")

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG001
        try:
            for state in optimizer.state.values():
                for value in state.values():
                    if isinstance(value, torch.Tensor) and value.dim():
                        note(f"state {value.element_size()}")
        except Exception as error:  # noqa: BLE001 - see imported()
            report("facts", error)

    try:
        for name in _LIBRARIES:
            found = find_spec(name)
            if found is not None:
                note(f"library {name}")
                folders = found.submodule_search_locations or ()
                if any(os.path.isdir(os.path.join(each, *_POOLS)) for each in folders):
                    note("switch memory-fragmentation")
        sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(after)
    except Exception as error:  # noqa: BLE001 - see imported()
        report("facts", error)


def _note_inputs(torch: Any, folder: str) -> None:
    """Writes the bytes of the tensors that the program passes to modules to a file of this process."""
    path, seen = _own_file(folder), set()
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)  # since torch 2.1
    counts: dict[str, int] = {}

    def before(module: Any, args: Any) -> None:
        if compiling() or not torch.is_grad_enabled():
            return
        try:
            tensors = [each for each in args if isinstance(each, torch.Tensor)]
            sizes = {size for each in tensors for *_, size in storages_of(torch, each)}
            new = [(id(module), size) for size in sizes if (id(module), size) not in seen]
            name = _name_of(module) if new else ""
            if not name or counts.get(name, 0) >= _MOST_SIZES:
                return
            seen.update(new)
            counts[name] = counts.get(name, 0) + len(new)
            with open(path, "a", encoding="utf-8") as file:
                file.writelines(f"input {size} {name}\n" for _, size in new)
        except Exception as error:  # noqa: BLE001 - see imported()
            report("inputs", error)

    torch.nn.modules.module.register_module_forward_pre_hook(before)


def _note_results(torch: Any, folder: str) -> None:
    """Writes the modules whose last operator saves its result for backward, as ReLU does, to a file of this process."""
    path, seen = _own_file(folder), set()
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)  # since torch 2.1

    def after(module: Any, args: Any, output: Any) -> None:  # noqa: ARG001
        if compiling() or id(module) in seen or not isinstance(output, torch.Tensor) or output.grad_fn is None:
            return
        try:
            seen.add(id(module))
            name = _name_of(module) if hasattr(type(output.grad_fn), "_saved_result") else ""
            if name:
                with open(path, "a", encoding="utf-8") as file:
                    file.write(f"result {name}\n")
        except Exception as error:  # noqa: BLE001 - see imported()
            report("results", error)

    torch.nn.modules.module.register_module_forward_hook(after)


def _note_calls(torch: Any) -> None:
    """Notes the lines of the program that free gradients or replicate a model in the recording."""
    from .session import current

    def follow(owner: Any, name: str, label: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def followed(*args: Any, **kwargs: Any) -> Any:
            try:
                session = current()
                if session is not None:
                    session.marks.called(label, calling_line(sys._getframe(1)))
            except Exception as error:  # noqa: BLE001 - see imported()
                report("calls", error)
            return original(*args, **kwargs)

        setattr(owner, name, followed)

    try:
        follow(torch.optim.Optimizer, "zero_grad", "zero_grad")
        follow(torch.nn.Module, "zero_grad", "zero_grad")
        follow(torch.nn.parallel.DistributedDataParallel, "__init__", "DistributedDataParallel")
    except Exception as error:  # noqa: BLE001 - see imported()
        report("calls", error)


def _trained(torch: Any, output: Any) -> Iterator[Any]:
    """Yields the tensors with gradients in what a module returns."""
    if isinstance(output, torch.Tensor):
        if output.requires_grad:
            yield output
    elif isinstance(output, (tuple, list, dict)):
        for each in output.values() if isinstance(output, dict) else output:
            yield from _trained(torch, each)


def _name_of(module: Any) -> str:
    """Returns the path of a module in its model, or "" if the recorder does not know it."""
    from .session import current

    session = current()
    number = None if session is None else session.naming.modules.get(id(module))
    return "" if session is None or number is None else str(session.marks.names[number])
