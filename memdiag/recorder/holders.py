"""Finds the live tensors of this process and who refers to them, within a time limit.

The garbage collector knows which object refers to which, but not by what name, and it does not see the local variables
of running functions. So running frames are read first, and names are looked up in the few objects that hold a tensor.
Tensors that only C++ holds, such as those that autograd saved, are no Python objects and are not found.
"""

from __future__ import annotations

import gc
import re
import sys
import time
import types
import weakref
from typing import Any

from .call_sites import OPTIMIZED, local_variables
from .expressions import is_a, step_to, variable
from .module_paths import ModulePaths

MOST_LEVELS = 6  # objects between a tensor and the variable that holds it
_AT_ONCE = 32  # objects whose holders one pass over the heap finds
_MOST_HOLDERS = 3  # of one object
_MOST_NODES = 100_000  # of autograd graphs

_SUBSCRIPT = re.compile(r"^\['(\w+)'\]")
_MODULE = re.compile(r"(?:\.|\[')_(?:parameters|buffers|modules)(?:'\])?\['(\w+)'\]")  # dictionaries of torch.nn.Module

_OWN = (__name__, f"{__package__}.holding", "memdiag.notebook.live")  # modules whose variables hold nothing

_seen_before: dict[int, Any] = {}


class LiveStorage:
    """One storage that live tensors use.

    Attributes:
        tensor: The largest tensor that uses it.
        num_tensors: Number of tensors that use it.
        num_bytes: Size of the storage.
        holders: Chains of names, the variable first; empty if no holder was found.
    """

    def __init__(self, tensor: Any, num_bytes: int) -> None:
        self.tensor = tensor
        self.num_tensors = 1
        self.num_bytes = num_bytes
        self.holders: list[str] = []


def live_tensors(torch: Any, *, top: int, seconds: float, growing: bool) -> tuple[list[LiveStorage], bool]:
    """Returns the storages of live tensors, the largest first, and whether the search was complete.

    Args:
        torch: The module torch.
        top: Number of storages whose holders are searched for.
        seconds: Time limit of the search for holders.
        growing: Only storages whose tensors did not exist at the previous call.
    """
    deadline = time.perf_counter() + seconds
    tensors = all_tensors(torch)
    gradients = [(id(grad), each) for each in tensors if (grad := _gradient(each)) is not None]
    tensors += [each.grad for _, each in gradients]
    found = _storages(tensors)
    if growing:
        found = [each for each in found if not _is_known(each.tensor)]
    _remember(tensors)
    shown = found[:top]
    search = HolderSearch(deadline)
    search.ignored.update(map(id, (tensors, found, shown, _seen_before, search, search.__dict__)))
    search.ignored.update(id(each) for each in found)
    search.ignored.update(id(each.__dict__) for each in found)
    by_storage: dict[int, list[Any]] = {}
    names = {storage_key(each.tensor): row for row, each in enumerate(shown)}
    for each in tensors:
        row = names.get(storage_key(each))
        if row is not None:
            by_storage.setdefault(row, []).append(each)
    search.ignored.update(map(id, [by_storage, *by_storage.values()]))
    results = _results(tensors, {id(each) for group in by_storage.values() for each in group}, deadline)
    search.ignored.update((id(results), *map(id, results.values())))
    parameters = {key: each for key, each in gradients if storage_key(each.grad) in names}
    search.ignored.update((id(gradients), id(parameters), *map(id, gradients)))
    try:
        targets = [each for group in by_storage.values() for each in group] + list(parameters.values())
        module = getattr(sys.modules.get("torch.nn"), "Module", None)
        search.ignored.add(id(targets))
        search.modules = ModulePaths(module, set(map(id, targets)))
        complete = search.run(targets + [each for some in results.values() for each in some])
        for row, group in by_storage.items():
            chains: dict[str, None] = {}
            for each in group:
                chains.update(dict.fromkeys(search.chains(each)))
                if id(each) in parameters:
                    chains.update(dict.fromkeys(map(_gradient_of, search.chains(parameters[id(each)]))))
            for each in group:
                for result in () if chains else results.get(id(each), ()):
                    chains.update(dict.fromkeys(f"the autograd graph of {name}" for name in search.chains(result)))
            variables = [chain for chain in chains if not chain.startswith("(")]
            shown[row].holders = sorted(variables or chains, key=len)[:_MOST_HOLDERS]
    finally:
        search.clear()
    return found, complete


def all_tensors(torch: Any) -> list[Any]:
    """Returns the live tensors that the garbage collector knows.

    Objects refer to their classes, which takes a third of the time of looking at every object. Not all versions of
    PyTorch tell the collector so.
    """
    kinds: set[Any] = set()
    waiting = [torch.Tensor]
    while waiting:
        kind = waiting.pop()
        if kind not in kinds:
            kinds.add(kind)
            waiting += type.__subclasses__(kind)
    found = [each for each in gc.get_referrers(*kinds) if type(each) in kinds]
    return found or [each for each in gc.get_objects() if type(each) in kinds]


def _gradient(tensor: Any) -> Any:
    """Returns the gradient of a leaf; reading it from other tensors would warn."""
    try:
        return tensor.grad if tensor.is_leaf and tensor.requires_grad else None
    except Exception:  # noqa: BLE001 - subclasses of tensors may refuse
        return None


def _results(tensors: list[Any], wanted: set[int], deadline: float) -> dict[int, list[Any]]:
    """Returns, by id of a leaf or intermediate result of an autograd graph, the last result of that graph."""
    results = {each.grad_fn: each for each in tensors if _has_graph(each)}
    later: dict[int, Any] = {}  # by id of a leaf or result: a result whose graph has it
    seen: set[Any] = set()
    for node, result in results.items():
        waiting = [] if node in seen else [node]
        while waiting and len(seen) < _MOST_NODES and time.perf_counter() < deadline:
            for following, _ in waiting.pop().next_functions:
                part = results.get(following, getattr(following, "variable", None))
                if part is not None and part is not result:
                    later[id(part)] = result
                if following is not None and following not in seen:
                    seen.add(following)
                    waiting.append(following)
    found = {}
    for key in wanted & later.keys():
        last, passed = later[key], {key}
        while id(last) in later and id(last) not in passed:
            passed.add(id(last))
            last = later[id(last)]
        found[key] = [last]
    return found


def _has_graph(tensor: Any) -> bool:
    try:
        return tensor.grad_fn is not None
    except Exception:  # noqa: BLE001 - as above
        return False


def storage_key(tensor: Any) -> tuple[str, int]:
    """Returns device and address of a tensor's storage; the address is 0 if it has none."""
    try:
        return str(tensor.device), tensor.untyped_storage().data_ptr()
    except Exception:  # noqa: BLE001 - fake, meta, sparse and lazy tensors have no storage
        return "", 0


def _storages(tensors: list[Any]) -> list[LiveStorage]:
    found: dict[tuple[str, int], LiveStorage] = {}
    for each in tensors:
        key = storage_key(each)
        if not key[1]:
            continue
        known = found.get(key)
        if known is None:
            found[key] = LiveStorage(each, each.untyped_storage().nbytes())
        elif known.tensor is not each:
            known.num_tensors += 1
            if each.numel() > known.tensor.numel():
                known.tensor = each
    return sorted(found.values(), key=lambda each: -each.num_bytes)


def _is_known(tensor: Any) -> bool:
    known = _seen_before.get(id(tensor))
    return known is not None and known() is tensor


def _remember(tensors: list[Any]) -> None:
    _seen_before.clear()
    for each in tensors:
        _seen_before[id(each)] = weakref.ref(each)


def _gradient_of(chain: str) -> str:
    name, word, where = chain.partition(" in ")
    return f"{name}.grad{word}{where}"


class HolderSearch:
    """Goes from tensors to their holders, one level of references at a time.

    Args:
        deadline: Time at which the search ends.
        pass_seconds: Expected time of one pass over the heap; a pass that would end too late is not begun.
    """

    def __init__(self, deadline: float, pass_seconds: float = 0.0) -> None:
        self._deadline = deadline
        self._holders: dict[int, list[Any]] = {}  # by id: the objects that refer to it, or names of roots
        self._pass_seconds = pass_seconds
        self.ignored: set[int] = set()
        self.modules = ModulePaths(None, ())

    def clear(self) -> None:
        """Lets go of all objects: a frame among them would keep this search, and with it every tensor."""
        self._holders.clear()
        self.modules.modules.clear()

    def run(self, targets: list[Any]) -> bool:
        """Searches; returns whether every level was searched."""
        self._globals = {id(vars(module)): name for name, module in list(sys.modules.items()) if _has_dict(module)}
        self._globals[id(vars(sys.modules["__main__"]))] = "__main__"  # multiprocessing adds another name
        self.ignored.update((id(targets), id(self._holders), id(self.ignored), id(self._globals)))
        inside, modules = self.modules.inside, self.modules.modules
        wanted = {id(each): each for each in targets if id(each) not in inside} | modules
        self.ignored.update(map(id, (wanted, modules, self.modules, vars(self.modules))))
        self._read_frames(wanted)
        kept = [wanted]  # no other object may get their ids
        self.ignored.add(id(kept))
        for _ in range(MOST_LEVELS):
            wanted = {key: each for key, each in wanted.items() if not self._is_root(each)}
            self.ignored.add(id(wanted))
            kept.append(wanted)
            if not wanted:
                return True
            above = self._level(wanted)
            if above is None:
                return False
            wanted = above
        return True

    def _level(self, wanted: dict[int, Any]) -> dict[int, Any] | None:
        """Notes the holders of objects; returns those not yet searched, or None if the time is over."""
        above: dict[int, Any] = {}
        targets = list(wanted.values())
        self.ignored.update((id(above), id(targets)))
        for first in range(0, len(targets), _AT_ONCE):
            began = time.perf_counter()
            if began + self._pass_seconds > self._deadline:
                return None
            some = targets[first : first + _AT_ONCE]
            holders = gc.get_referrers(*some)
            self._pass_seconds = time.perf_counter() - began
            mine = {id(some), id(holders)}
            for holder in holders:
                if id(holder) in self.ignored or id(holder) in mine or self._is_own(holder):
                    continue
                for target in wanted.keys() & set(map(id, gc.get_referents(holder))):
                    kept = self._holders.setdefault(target, [])
                    self.ignored.add(id(kept))
                    if len(kept) < _MOST_HOLDERS and not any(each is holder for each in kept):
                        kept.append(holder)
                        if id(holder) not in self._holders:
                            above[id(holder)] = holder
        return above

    def _is_own(self, holder: Any) -> bool:
        """Returns whether a holder is a weak reference, or belongs to this search."""
        kind = type(holder)
        is_here = kind is types.FrameType and holder.f_globals.get("__name__") in _OWN
        return is_here or kind is LiveStorage or is_a(holder, weakref.ReferenceType)

    def _is_root(self, each: Any) -> bool:
        return id(each) in self._globals or is_a(each, types.ModuleType)

    def _read_frames(self, wanted: dict[int, Any]) -> None:
        """Notes local variables of running functions that are tensors, or containers of them."""
        frames: list[Any] = list(sys._current_frames().values())
        while frames:
            frame = frames.pop()
            if frame.f_back is not None:
                frames.append(frame.f_back)
            if frame.f_globals.get("__name__") not in _OWN and frame.f_code.co_flags & OPTIMIZED:
                self._read_frame(frame, wanted)
        del frame  # the frame of this function may be among them, and would keep itself and the callers' tensors

    def _read_frame(self, frame: Any, wanted: dict[int, Any]) -> None:
        where = _function(frame.f_code)
        for name, value in local_variables(frame):
            inside = list(value.values()) if type(value) is dict else value if type(value) in (list, tuple) else ()
            if id(value) in wanted or any(id(each) in wanted for each in inside):
                self._holders.setdefault(id(value), []).append(f"{name} in {where}")

    def chains(self, tensor: Any) -> list[str]:
        """Returns the ways from a variable to a tensor."""
        return [_MODULE.sub(r".\1", chain) for chain in self._chains(tensor, "", 0, ())]

    def _chains(self, each: Any, suffix: str, depth: int, path: tuple[int, ...]) -> list[str]:
        found: list[str] = []
        for model, name in self.modules.inside.get(id(each), ()):
            module = self.modules.modules[model]
            above = self._chains(module, f".{name}{suffix}", depth, path)
            found += above or [f"({type(module).__name__}).{name}{suffix}"]
        if found:
            return found
        for holder in self._holders.get(id(each), ()):
            if is_a(holder, str):
                name, _, where = holder.partition(" in ")
                found.append(f"{name}{suffix} in {where}")
                continue
            if id(holder) in path or depth > MOST_LEVELS:
                continue
            if getattr(holder, "__dict__", None) is each and suffix:  # attributes, not items of a dictionary
                step, suffix_here = "", _SUBSCRIPT.sub(r".\1", suffix, count=1)
            else:
                step, suffix_here = step_to(holder, each), suffix
            if id(holder) in self._globals:
                found.append(variable(self._globals[id(holder)], step, suffix_here))
                continue
            root = self._closure(holder, suffix_here) or _root(holder, each, suffix_here)
            if root:
                found.append(root)
                continue
            if type(holder) is types.CellType:  # of a function that no longer exists, or not searched
                continue
            above = self._chains(holder, step + suffix_here, depth + 1, (*path, id(each)))
            found += above or [f"({type(holder).__name__}){step}{suffix_here}"]
        return found

    def _closure(self, cell: Any, suffix: str) -> str:
        """Returns the chain that ends at the function whose closure has a cell, or ""."""
        if type(cell) is not types.CellType or time.perf_counter() + 2 * self._pass_seconds > self._deadline:
            return ""
        owners = [each for each in gc.get_referrers(cell) if type(each) is tuple]
        self.ignored.add(id(owners))
        functions = [each for each in gc.get_referrers(*owners) if type(each) is types.FunctionType] if owners else []
        for function in functions:
            for name, inside in zip(function.__code__.co_freevars, function.__closure__ or ()):
                if inside is cell:
                    return f"{name}{suffix} in the closure of {_function(function.__code__)}"
        return ""


def _has_dict(module: Any) -> bool:
    return is_a(getattr(module, "__dict__", None), dict)


def _function(code: Any) -> str:
    return f"{getattr(code, 'co_qualname', code.co_name)} ({code.co_filename}:{code.co_firstlineno})"


def _root(holder: Any, each: Any, suffix: str) -> str:
    """Returns the chain that ends at a frame, a generator, an exception or an autograd function, or ""."""
    if is_a(holder, types.FrameType):
        name = next((name for name, value in local_variables(holder) if value is each), "…")
        return f"{name}{suffix} in {_function(holder.f_code)}, kept by a traceback or a generator"
    if is_a(holder, types.GeneratorType):
        return f"a variable{suffix} of the generator {_function(holder.gi_code)}"
    if is_a(holder, BaseException):
        return f"the exception {type(holder).__name__}{suffix}"
    if type(holder).__name__.endswith("Backward") and hasattr(holder, "saved_tensors"):
        return f"the autograd graph, {type(holder).__name__}{suffix}"
    return ""
