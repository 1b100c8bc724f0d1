"""What a remedy looks at: one recorded process, prepared once for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.subject import Subject
from memdiag.analyzers.support.context import Context, DeviceView
from memdiag.fix.edit import Edit, edited
from memdiag.offload.modules import Modules
from memdiag.offload.passes import Passes
from memdiag.runs.outlook import is_failing
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.stacks import Frame
from memdiag.trace.table import Array


@dataclass(frozen=True)
class Peaks:
    """Peaks of a replay in bytes, and whether it fits into the budget."""

    reserved: int
    allocated: int
    fits: bool


@dataclass(frozen=True)
class Case:
    """One recorded process and the memory that it should fit into.

    Attributes:
        subject: The recording.
        budget_bytes: Memory of the device that the program should fit into.
    """

    subject: Subject
    budget_bytes: int

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

    def peaks(self, edit: Edit, conf: str | None = None) -> Peaks:
        """Replays the program with changed requests.

        Args:
            edit: The changes.
            conf: Allocator settings, or None for the recorded ones.
        """
        workload = edited(self.subject.workload, edit)
        unlimited = self._replay(workload_of=workload, scenario=self._scenario(conf, None))
        reserved, allocated = (int(getattr(unlimited, name).max(initial=0)) for name in ("reserved", "allocated"))
        room = self.budget_bytes - self.subject.most_outside
        fits = reserved <= room
        if not fits and allocated <= room:
            within = self._replay(workload_of=workload, scenario=self._scenario(conf, self.budget_bytes))
            fits = not is_failing(within)
            reserved = int(within.reserved.max(initial=0)) if fits else reserved
        return Peaks(reserved, allocated, fits)

    def _scenario(self, conf: str | None, capacity: int | None) -> Scenario:
        own = self.subject.recorded if capacity is None else self.subject.on_card(capacity)
        own = replace(own, capacity_bytes=capacity)
        return own if conf is None else replace(own, conf=conf)

    def _replay(self, workload_of: object, scenario: Scenario) -> Replay:
        return replace(self.subject, workload=workload_of).replay(scenario, log=False)  # type: ignore[arg-type]

    def callers(self, rows: Array) -> tuple[Frame, ...]:
        """Returns the program's own lines under which all given tensors were allocated, outermost first."""
        stacks = self.trace.stacks
        common: list[Frame] | None = None
        for number in np.unique(self.device.tensors.stack[rows]).tolist():
            frames = [frame for frame in stacks[number][::-1] if frame.is_python]
            if not frames:
                continue
            if common is None:
                common = frames
                continue
            same = next((i for i, pair in enumerate(zip(common, frames, strict=False)) if pair[0] != pair[1]), None)
            common = common[: min(len(common), len(frames)) if same is None else same]
        return tuple(frame for frame in common or () if frame.is_user)
