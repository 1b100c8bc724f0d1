"""What a remedy looks at: one recorded process, prepared once for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.workload import Workload
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.errors import MemdiagError
from memdiag.fix.casts import Casts
from memdiag.fix.edit import Edit, edited, live_curve
from memdiag.fix.releases import CallOutputs, released_at
from memdiag.fix.workspaces import ConvolutionWorkspaces
from memdiag.offload.modules import Modules
from memdiag.offload.passes import Passes
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.schema import CATEGORIES, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array

_EXPANDABLE = "expandable_segments:True"
_MODULES = "/torch/nn/modules/module.py"
_RESERVING = (SEGMENT_ALLOC, SEGMENT_MAP)
_RELEASING = (SEGMENT_FREE, SEGMENT_UNMAP)
_PARAMETER = CATEGORIES.index("parameter")
_PREPARED = (
    "view",
    "passes",
    "modules",
    "called",
    "casts",
    "gradient_sizes",
    "memo",
    "outputs",
    "released",
    "workspaces",
)


@dataclass(frozen=True)
class Peaks:
    """Peaks of a replay in bytes, and whether it fits into the budget."""

    reserved: int
    allocated: int
    fits: bool


@dataclass(frozen=True)
class PooledRun:
    """The lifetime-segregated pools of MindSpeed, in place of PyTorch's allocator.

    Attributes:
        policies: Policies of the generations that may be installed; the program must fit with each of them.
        fraction: Per-process memory fraction, which leaves room for HCCL.
    """

    policies: tuple[str, ...]
    fraction: float


@dataclass(frozen=True)
class Given:
    """Changes by remedies that are already chosen.

    Attributes:
        edit: Changes of the requests.
        conf: Allocator settings, or None for the recorded ones.
        lifts_fraction: Whether the recorded per-process memory fraction no longer applies.
        pools: Lifetime-segregated pools that are turned on, or None.
    """

    edit: Edit = field(default_factory=Edit)
    conf: str | None = None
    lifts_fraction: bool = False
    pools: PooledRun | None = None


@dataclass(frozen=True)
class FixCase:
    """One recorded process and the memory that it should fit into.

    Attributes:
        subject: The recording.
        budget_bytes: Memory of the device that the program should fit into.
        given: Changes by remedies that are already chosen.
        returning: Paths of modules that return several tensors, as far as they are known.
        facts: Facts about the process that its trace does not show (see ``memdiag.recorder.fixing``).
    """

    subject: Subject
    budget_bytes: int
    given: Given = field(default_factory=Given)
    returning: frozenset[str] = frozenset()
    facts: frozenset[str] = frozenset()

    def after(self, given: Given) -> FixCase:
        """Returns the case with the changes of chosen remedies; what was prepared is kept."""
        return self._with(replace(self, given=given))

    def sparing(self, share: float) -> FixCase:
        """Returns the case with a share of the allocator's memory to spare; what was prepared is kept."""
        return self._with(replace(self, budget_bytes=self.budget_bytes - int(share * self.room_bytes)))

    def knowing(self, returning: frozenset[str], facts: frozenset[str] = frozenset()) -> FixCase:
        """Returns the case with more modules that return several tensors and more facts; what was prepared is kept."""
        made = self._with(replace(self, returning=self.returning | returning, facts=self.facts | facts))
        made.__dict__.pop("memo", None)
        return made

    def _with(self, made: FixCase) -> FixCase:
        _ = self.memo  # both cases share it, also if it is still empty
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name in _PREPARED})
        return made

    @cached_property
    def memo(self) -> dict[str, Any]:
        """What remedies derive from the recording and the facts, whatever is given, by name: they derive it once."""
        return {}

    @property
    def room_bytes(self) -> int:
        """Memory that the allocator may reserve."""
        return self.budget_bytes - self.subject.most_outside

    @property
    def trace(self) -> Trace:
        """The recording."""
        return self.subject.trace

    @property
    def device(self) -> DeviceTrace:
        """The recording of the device."""
        return self.subject.device

    @cached_property
    def view(self) -> DeviceView:
        """The recording at its moment of interest."""
        views = Context().views(self.trace)
        return next(view for view in views if view.device.device == self.device.device)

    @cached_property
    def passes(self) -> Passes:
        """Forward, backward and optimizer passes."""
        return Passes.of(self.device)

    @cached_property
    def modules(self) -> Modules:
        """When the code of each module ran."""
        return Modules.of(self.trace, self.device)

    @cached_property
    def called(self) -> frozenset[str]:
        """Paths of the modules that are called; those that only contain others, as a ModuleList, are not."""
        recorded = self.trace.recorded
        if recorded is None:
            return frozenset()
        return frozenset(recorded.names[name] for name in np.unique(recorded.modules["name"]).tolist() if name >= 0)

    @cached_property
    def casts(self) -> Casts:
        """Copies of weights in 16 bits that autocast makes."""
        return Casts.of(self.trace, self.device)

    @cached_property
    def released(self) -> Array:
        """Event before which the program lets go of each tensor, apart from autograd (see ``released_at``)."""
        return released_at(self.trace, self.device, self.outputs, self.casts)

    @cached_property
    def outputs(self) -> CallOutputs:
        """Finds the outputs of calls."""
        return CallOutputs.of(self.device)

    def accepts(self, conf: str) -> bool:
        """Returns whether the recorded version of the allocator accepts some settings."""
        backend = "npu" if self.trace.backend == "npu" else "cuda"
        try:
            Conf.parse(conf, backend, self.subject.recorded.torch_version)
        except MemdiagError:
            return False
        return True

    def lines_calling(self, function: str) -> list[str]:
        """Returns the program's lines that call a function, as "train.py:12 main", the most frequent callers first."""
        lines = {} if self.trace.recorded is None else self.trace.recorded.calls.get(function, {})
        return sorted(lines, key=lambda line: -lines[line])

    @cached_property
    def inputs(self) -> dict[str, frozenset[int]]:
        """Bytes of the tensors that the program passes to modules, by path, as far as they are known."""
        found: dict[str, set[int]] = {}
        for fact in self.facts:
            kind, _, rest = fact.partition(" ")
            size, _, path = rest.partition(" ")
            if kind == "input":
                found.setdefault(path, set()).add(int(size))
        return {path: frozenset(sizes) for path, sizes in found.items()}

    @cached_property
    def saves_result(self) -> frozenset[str]:
        """Paths of the modules whose last operator saves its result for backward, as far as they are known."""
        return frozenset(rest for kind, _, rest in (fact.partition(" ") for fact in self.facts) if kind == "result")

    @cached_property
    def gradient_sizes(self) -> tuple[Array, Array]:
        """Requested bytes of gradients of weights and of biases, also in half the precision of the parameters."""
        tensors, names = self.device.tensors, self.trace.strings
        rows = np.flatnonzero((tensors.category == _PARAMETER) & (tensors.name >= 0))
        is_bias = np.array([names[name].endswith("bias") for name in tensors.name[rows].tolist()], bool)
        sizes = tensors.requested_bytes[rows]
        biases = np.unique(np.concatenate([sizes[is_bias], sizes[is_bias] // 2]))
        return np.setdiff1d(np.concatenate([sizes, sizes // 2]), biases), biases

    @cached_property
    def workspaces(self) -> ConvolutionWorkspaces:
        """Workspaces of convolutions, without which the program survives."""
        return ConvolutionWorkspaces.of(self.trace, self.device)

    def peaks_with(self, edit: Edit) -> Peaks:
        """Replays the program with changed requests, in addition to those of chosen remedies."""
        return self.peaks_given(replace(self.given, edit=self.given.edit | edit))

    def peaks_given(self, given: Given) -> Peaks:
        """Replays the program with the changes of some remedies."""
        if given.pools is not None:
            return self._peaks_in_pools(edited(self.subject.workload, given.edit), given.pools)
        return self.peaks(given.edit, given.conf, lifts_fraction=given.lifts_fraction)

    def _peaks_in_pools(self, workload: Workload, pools: PooledRun) -> Peaks:
        """Replays requests with lifetime-segregated pools on the card, and returns the worst result.

        As long as the card has memory, the pools reserve more of it, so there is no peak without a limit.
        """
        found = []
        for policy in pools.policies:
            scenario = replace(self.subject.on_card(self.budget_bytes), policy=policy, conf="", fraction=pools.fraction)
            subject = replace(self.subject, workload=workload, prepared={})  # marks have numbers of requests
            replay = subject.replay(scenario, log=False)
            reserved, allocated = (int(getattr(replay, name).max(initial=0)) for name in ("reserved", "allocated"))
            fits = reserved <= self.room_bytes and not np.isin(replay.status, (OUT_OF_MEMORY, UNDEFINED)).any()
            found.append(Peaks(reserved, allocated, fits))
        return min(found, key=lambda each: (each.fits, -each.reserved))

    def peaks(self, edit: Edit, conf: str | None = None, *, lifts_fraction: bool = False) -> Peaks:
        """Replays the program with changed requests.

        Args:
            edit: The changes.
            conf: Allocator settings, or None for the recorded ones.
            lifts_fraction: Whether the recorded per-process memory fraction no longer applies.
        """
        workload = edited(self.subject.workload, edit)
        if self.subject.is_foreign:  # the CPU's allocator caches nothing
            peak = int(live_curve(workload, 1).max(initial=0)) + max(self.device.start["allocated"], 0)
            return Peaks(peak, peak, peak <= self.room_bytes)
        unlimited = self._replay(workload, self._scenario(conf, None, 1.0))
        reserved, allocated = (int(getattr(unlimited, name).max(initial=0)) for name in ("reserved", "allocated"))
        fraction = 1.0 if lifts_fraction else self.subject.limits.share or 1.0
        room = min(self.room_bytes, int(fraction * self.budget_bytes))
        fits = reserved <= room
        card = self._scenario(conf, self.budget_bytes, fraction)
        within: Replay | None = None
        if fits and _EXPANDABLE in card.conf.replace(" ", ""):  # address space is limited by the memory of the card
            replay = self._replay(workload, card, log=True)
            within = None if np.isin(replay.status, (OUT_OF_MEMORY, UNDEFINED)).any() else replay
        elif not fits and (allocated <= room or self.workspaces.following):
            within = self.workspaces.replayed(workload, lambda each: self._replay(each, card, log=True))
        if within is not None:
            fits, reserved, allocated = True, _most_reserved(within), int(within.allocated.max(initial=0))
        return Peaks(reserved, allocated, fits)

    def _scenario(self, conf: str | None, capacity: int | None, fraction: float) -> Scenario:
        own = self.subject.recorded if capacity is None else self.subject.on_card(capacity)
        share = own.fraction if self.subject.limits.share is None else None if fraction >= 1 else fraction
        own = replace(own, capacity_bytes=capacity, fraction=share)
        return own if conf is None else replace(own, conf=conf)

    def _replay(self, workload: Workload, scenario: Scenario, *, log: bool = False) -> Replay:
        return replace(self.subject, workload=workload).replay(scenario, log=log)

    def callers(self, rows: Array, *, of_models: bool = False) -> tuple[Frame, ...]:
        """Returns the program's own lines under which all given tensors were allocated, outermost first.

        Args:
            rows: The tensors, as rows in Tensors.
            of_models: Whether to ignore the lines inside modules, so that the last line calls a model.
        """
        stacks = self.trace.stacks
        common: list[Frame] | None = None
        for number in np.unique(self.device.tensors.stack[rows]).tolist():
            frames = [frame for frame in stacks[number][::-1] if frame.is_python]
            if of_models:
                called = (at for at, frame in enumerate(frames) if frame.filename.endswith(_MODULES))
                frames = frames[: next(called, None)]
            if not frames:
                continue
            if common is None:
                common = frames
                continue
            same = next((i for i, pair in enumerate(zip(common, frames, strict=False)) if pair[0] != pair[1]), None)
            common = common[: min(len(common), len(frames)) if same is None else same]
        return tuple(frame for frame in common or () if frame.is_user)


def _most_reserved(replay: Replay) -> int:
    """Returns the largest reserved bytes, also within calls that reserve memory and then release cached memory."""
    most = int(replay.reserved.max(initial=0))
    if replay.log is None or not len(replay.reserved):
        return most
    action, size = replay.log["action"], replay.log["size"]
    change = np.where(np.isin(action, _RESERVING), size, np.where(np.isin(action, _RELEASING), -size, 0))
    curve = np.cumsum(change)
    return max(most, int(replay.reserved[-1] + (curve - curve[-1:]).max(initial=0)))
