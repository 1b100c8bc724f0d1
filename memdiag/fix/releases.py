"""When a program lets go of the tensors that it makes in forward, apart from what autograd keeps for backward.

A tensor made in a function is local to it, unless the function returns it: then it belongs to the calling function.
Calls are read from the stacks of allocations, and the modules that ran. If the source file is at hand, the function
lets go of a tensor as soon as its last variable has another value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from memdiag.fix.casts import Casts
from memdiag.fix.sources import SourceFile, Statement, source_of
from memdiag.offload.passes import FORWARD
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.recorded import module_at
from memdiag.trace.schema import ALLOC
from memdiag.trace.stacks import Stacks
from memdiag.trace.table import Array

NEVER = np.iinfo(np.int64).max
_CALL = "_wrapped_call_impl"  # the function of torch.nn.Module around a call
_Path = tuple[tuple[int, int], ...]  # function and line of each Python frame, outermost first


@dataclass(frozen=True)
class CallOutputs:
    """Finds the output of a call among the tensors that outlive it.

    Backward of the operators that use the output runs before that of the operators in the call, so it is freed first.
    An operator may save its output together with statistics or a mask, which are smaller.

    Attributes:
        device: The recording.
        num_allocs: Allocations before each event.
    """

    device: DeviceTrace
    num_allocs: Array

    @classmethod
    def of(cls, device: DeviceTrace) -> CallOutputs:
        """Prepares a recording."""
        return cls(device, np.append(0, np.cumsum(device.events.action == ALLOC)))

    def among(self, rows: Iterable[int]) -> int:
        """Returns which of the tensors that outlive a call it returns, as a row in Tensors, or -1 if there are none."""
        tensors = self.device.tensors

        def order(row: int) -> tuple[int, int, int]:
            freed = int(tensors.free_requested_at[row])
            return int(self.num_allocs[freed]), -int(tensors.requested_bytes[row]), -row

        return min(rows, key=order, default=-1)


def released_at(trace: Trace, device: DeviceTrace, outputs: CallOutputs, casts: Casts) -> Array:
    """Returns the event before which the program lets go of each tensor (int64), or NEVER if unknown.

    Known are tensors of forward that are made in a call with a Python stack, except the copies of weights by autocast.
    """
    return _Releases(trace, device, outputs, set(casts.rows.tolist())).found()


@dataclass
class _OpenCall:
    """A call that has not returned yet.

    Attributes:
        function: Number of its function.
        line: The line that it runs.
        source: The source of its file, or None.
        held: The tensors that it holds.
        made: Those that the running statement has made, in groups: tensors of one operator, or the output of a call.
        stack: Stack of the last group, or -1 if a call returned it.
        variables: The tensors of its local variables.
        kept: The tensors that something else may hold until the call returns.
    """

    function: int
    line: int
    source: SourceFile | None
    held: list[int] = field(default_factory=list)
    made: list[list[int]] = field(default_factory=list)
    stack: int = -1
    variables: dict[str, frozenset[int]] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)

    @property
    def statement(self) -> Statement | None:
        """The statement that it runs, or None if unknown."""
        return None if self.source is None else self.source.at(self.line)

    def hold(self, row: int, stack: int = -1) -> None:
        """Adds a tensor that the running statement has made, with the stack of its allocation if that was here."""
        self.held.append(row)
        if stack < 0 or stack != self.stack:
            self.made.append([])
        self.made[-1].append(row)
        self.stack = stack

    def of(self, statement: Statement) -> frozenset[int]:
        """Returns the tensors of the variables that a statement uses."""
        return frozenset().union(*(self.variables.get(name, ()) for name in statement.uses))

    def run(self, statement: Statement) -> None:
        """Follows a statement that allocates nothing. Its variables then have tensors of the variables that it uses."""
        used = self.of(statement)
        for name in statement.targets:
            self.variables[name] = used if statement.is_certain else used | self.variables.get(name, frozenset())
        if not statement.binds:
            self.kept |= used
        for name in statement.deletes if statement.is_certain else ():
            self.variables.pop(name, None)


class _Releases:
    """Follows the calls of a recording."""

    def __init__(self, trace: Trace, device: DeviceTrace, outputs: CallOutputs, cached: set[int]) -> None:
        self._trace, self._device, self._outputs, self._cached = trace, device, outputs, cached
        self._reader = _StackReader(trace.stacks)
        self._released = np.full(len(device.tensors), NEVER, np.int64)
        self._calls: list[_OpenCall] = []

    def found(self) -> Array:
        """Returns the result of ``released_at``."""
        recorded, events = self._trace.recorded, self._device.events
        if recorded is None:
            return self._released
        allocs = np.flatnonzero((events.action == ALLOC) & (events.tensor >= 0))
        is_forward = events.phase[allocs] == FORWARD
        running = module_at(recorded, self._device)
        names = {name: recorded.names[name] for name in np.unique(running).tolist() if name >= 0}
        levels = {name: _levels(path, set(names.values())) for name, path in names.items()}
        before: tuple[str, ...] = ()
        for event in allocs[is_forward | np.append(False, is_forward[:-1])].tolist():
            if events.phase[event] != FORWARD:
                self._return(0, event)
                continue
            now = levels.get(int(running[event]), ())
            self._step(event, before, now)
            before = now
        return self._released

    def _step(self, event: int, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """Follows one allocation, given the modules that ran before and now."""
        row, calls = int(self._device.events.tensor[event]), self._calls
        stack = int(self._device.tensors.stack[row])
        path, module_depths = self._reader.path(stack)
        common = _common(calls, path, _first_new(before, now, module_depths))
        self._return(common, event)
        if common:
            call, line = calls[common - 1], path[common - 1][1]
            if call.line != line or _is_next(before, now):
                self._end_statement(call, line, event)
            else:
                self._end_parts(call, event)
            call.line = line
        calls += [_OpenCall(*each, self._reader.source(each[0])) for each in path[common:]]
        if calls and row not in self._cached:
            calls[-1].hold(row, stack)

    def _return(self, left: int, event: int) -> None:
        """Ends the innermost calls, before an event, until some are left."""
        calls = self._calls
        while len(calls) > left:
            held = self._alive(calls.pop().held, event)
            output = self._outputs.among(held)
            if output >= 0 and calls:
                calls[-1].hold(output)
                held.remove(output)
            self._released[held] = event

    def _end_parts(self, call: _OpenCall, event: int) -> None:
        """Frees the tensors that only finished parts of a statement use, before an event of the same statement."""
        statement = call.statement
        if statement is not None and statement.is_chain and len(call.made) > 1:
            self._let_go(call, {row for group in call.made[:-1] for row in group}, event)
            call.made = call.made[-1:]

    def _end_statement(self, call: _OpenCall, following: int, event: int) -> None:
        """Gives the variables of a statement their value, and frees the tensors that no variable has any more."""
        made, statement = self._alive([row for group in call.made for row in group], event), call.statement
        call.made, call.stack = [], -1
        if call.source is None or statement is None or not statement.binds:
            call.kept.update(made)
        if call.source is None or statement is None:
            return
        if not made:
            call.run(statement)
        else:
            value = {self._outputs.among(made)} if statement.is_single else made
            call.variables.update(dict.fromkeys(statement.targets, frozenset(value)))
        for each in call.source.between(statement, following):
            call.run(each)
        self._let_go(call, set(call.held).difference(call.kept, *call.variables.values()), event)

    def _let_go(self, call: _OpenCall, rows: set[int], event: int) -> None:
        call.held = [row for row in call.held if row not in rows]
        self._released[self._alive(rows, event)] = event

    def _alive(self, rows: Iterable[int], event: int) -> list[int]:
        return [row for row in rows if self._device.tensors.free_requested_at[row] >= event]


def _levels(path: str, called: set[str]) -> tuple[str, ...]:
    """Returns the called modules around a module, outermost first, and the module itself."""
    parts = path.split(".")
    prefixes = (".".join(parts[: size + 1]) for size in range(len(parts)))
    return tuple(prefix for prefix in prefixes if prefix in called)


def _first_new(before: tuple[str, ...], now: tuple[str, ...], module_depths: tuple[int, ...]) -> int:
    """Returns the depth of the first frame that belongs to another call of a module than the frame before it."""
    pairs = enumerate(zip(before, now, strict=False))
    same = next((i for i, (one, other) in pairs if one != other), min(len(before), len(now)))
    if same == len(now) or len(now) > len(module_depths):
        return NEVER
    return module_depths[len(module_depths) - len(now) + same]


def _is_next(before: tuple[str, ...], now: tuple[str, ...]) -> bool:
    """Returns whether a numbered module follows another one, as in a loop over layers: "layers.0", "layers.1"."""
    first = next((pair for pair in zip(before, now, strict=False) if pair[0] != pair[1]), None)
    if first is None:
        return False
    (one, _, number), (other, _, following) = (path.rpartition(".") for path in first)
    return one == other and number.isdigit() and following.isdigit()


def _common(calls: list[_OpenCall], path: _Path, limit: int) -> int:
    """Returns how many of the open calls continue in a stack."""
    depth = 0
    for call, (function, line) in zip(calls, path, strict=False):
        if depth >= limit or call.function != function:
            return depth
        depth += 1
        if call.line != line:
            return depth
    return depth


class _StackReader:
    """Python frames of stacks, by their number."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        functions: dict[tuple[str, str], int] = {}
        numbers = [functions.setdefault((frame.filename, frame.name), len(functions)) for frame in stacks.frames]
        pairs = zip(numbers, stacks.frames, strict=True)
        self._frames = [(number, frame.line) if frame.is_python else None for number, frame in pairs]
        self._is_call = [frame.name == _CALL for frame in stacks.frames]
        self._files = [filename for filename, _ in functions]
        self._known: dict[int, tuple[_Path, tuple[int, ...]]] = {}

    def path(self, stack: int) -> tuple[_Path, tuple[int, ...]]:
        """Returns the frames of a stack, and the depths at which a module is called."""
        if stack not in self._known:
            ids = self._ids(stack)
            path = tuple(frame for each in ids if (frame := self._frames[each]) is not None)
            python = [each for each in ids if self._frames[each] is not None]
            self._known[stack] = path, tuple(depth for depth, each in enumerate(python) if self._is_call[each])
        return self._known[stack]

    def source(self, function: int) -> SourceFile | None:
        """Returns the source of a function's file."""
        return source_of(self._files[function])

    def _ids(self, stack: int) -> list[int]:
        if stack < 0:
            return []
        first, last = int(self._stacks.offsets[stack]), int(self._stacks.offsets[stack + 1])
        return self._stacks.frame_ids[first:last][::-1].tolist()  # type: ignore[no-any-return]
