"""The recording that a simulation starts from, and the scenario to simulate: policy, settings, version and card."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from memdiag.allocator.as_trace import Simulated, as_trace
from memdiag.allocator.calibration.calibrate import Calibration, described_best
from memdiag.allocator.calibration.continuation import EARLIER_STEP, Continuation, continuation_of
from memdiag.allocator.calibration.limits import Limits
from memdiag.allocator.policies import POLICIES
from memdiag.allocator.policies.parameters import parameters
from memdiag.allocator.result import OUT_OF_MEMORY, UNDEFINED, Replay, Replayer
from memdiag.allocator.scenario import Beginning, Scenario
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import EXTERNAL, Workload
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.moments import DEFAULT
from memdiag.trace.reach import Reach, reach_of


@dataclass(frozen=True)
class Subject:
    """A recording, prepared for simulation.

    Attributes:
        trace, device: The recording.
        workload: The requests of the program.
        limits: The memory that was available to the allocator.
        calibration: How exactly the recorded settings reproduce it.
        replayer: The function that replays a workload.
        prepared: Facts about the program that policies need, by name of the policy, kept for the next replay.
        at: The moment at which reserved memory is split, as given with ``--at`` (``memdiag.trace.moments``).
    """

    trace: Trace
    device: DeviceTrace
    workload: Workload
    limits: Limits
    calibration: Calibration
    replayer: Replayer
    prepared: dict[str, Any] = field(default_factory=dict, compare=False)
    at: str | int = DEFAULT

    @classmethod
    def of(cls, trace: Trace, device: DeviceTrace, replayer: Replayer | None = None) -> Subject:
        """Infers the workload of a recording and calibrates."""
        if replayer is None:
            from memdiag.allocator.replay import serve

            replayer = serve
        workload, calibration = described_best(trace, device, replayer)
        return cls(trace, device, workload, calibration.limits, calibration, replayer)

    @property
    def recorded(self) -> Scenario:
        """The recorded settings."""
        found = self.calibration
        return Scenario(found.policy, found.conf, found.torch_version, self.limits.capacity_bytes, self.limits.fraction)

    @cached_property
    def reach(self) -> Reach:
        """How much of the run the recording covers."""
        return reach_of(self.trace, self.device)

    @cached_property
    def continuation(self) -> Continuation | None:
        """The probable requests after the first failed one; None: none failed, or there is no basis for an estimate."""
        return continuation_of(self.trace, self.device, self.workload)

    def rest_fails(self, scenario: Scenario) -> bool:
        """Returns whether a later request fails if the step of the failure continues like an earlier step."""
        follows = self.continuation
        if follows is None or follows.basis != EARLIER_STEP or POLICIES[scenario.policy].standing != "native":
            return False
        replay = self.replayer(follows.workload, scenario, Beginning(keep_start=self.is_recorded(scenario)))
        return bool(np.isin(replay.status[follows.failed_call :], (OUT_OF_MEMORY, UNDEFINED)).any())

    def on_card(self, capacity: int) -> Scenario:
        """Returns the recorded settings on a card of ``capacity`` bytes and the recorded memory outside the allocator.

        The memory fraction of the process is the recorded one. A limit that is inferred from refused requests stays the
        same in bytes.
        """
        limit = self.limits.limit_bytes
        fraction = (
            self.limits.share
            if self.limits.share is not None
            else None
            if limit is None
            else min(limit / capacity, 1.0)
        )
        return replace(self.recorded, capacity_bytes=capacity, fraction=fraction)

    @property
    def most_outside(self) -> int:
        """Upper bound of the bytes of the card outside the allocator in a replay."""
        work = self.workload
        return int(work.size[work.op == EXTERNAL].max(initial=0))

    def with_outside(self, outside: int) -> Subject:
        """Returns a copy with a constant number of bytes of the card outside the allocator."""
        work = self.workload
        kept = np.flatnonzero(work.op != EXTERNAL)
        first = {"op": EXTERNAL, "tensor": -1, "size": outside, "stream": 0, "pool": -1, "row": -1} if outside else {}
        columns: dict[str, Any] = {
            name: getattr(work, name)[kept] for name in ("op", "tensor", "size", "stream", "pool", "row")
        }
        columns |= {
            name: np.concatenate((np.array([value], columns[name].dtype), columns[name]))
            for name, value in first.items()
        }
        limits = replace(self.limits, steps=np.array([(0, outside)], np.int64), outside_basis="given")
        return replace(self, workload=replace(work, **columns), limits=limits, prepared={})

    @property
    def is_foreign(self) -> bool:
        """Returns True if no policy models the recorded allocator (that of the CPU, which has no cache)."""
        return self.trace.backend not in {"cuda", "hip", "npu", None}

    @cached_property
    def comparable_peak(self) -> int | None:
        """The reserved peak to compare predictions with; None: the recorded peak is unknown.

        Predictions start without the cache from before the recording. To not count that as a saving, the recorded
        settings are replayed from the same start if there was such a cache. The same applies to a trace without
        addresses, since some of its reserved memory may have served tensors that the trace does not contain.
        """
        recorded = recorded_peak(self.device, "reserved")
        if self.is_foreign or recorded is None:
            return None
        if self.device.has_addresses and not len(self.workload.start.base):
            return recorded
        own = self.recorded
        anew = self.replayer(self.workload, own, Beginning(keep_start=False))
        peak = int(anew.reserved.max(initial=0))
        return min(recorded, peak) if self.device.has_addresses else peak

    def is_recorded(self, scenario: Scenario) -> bool:
        """Returns whether ``scenario`` has the recorded settings, on any card; replays then keep the recorded start."""
        # only PyTorch's own allocators can be recorded
        if self.is_foreign or POLICIES[scenario.policy].standing != "native":
            return False
        own = self.recorded
        backends = {POLICIES[each.policy].backend for each in (own, scenario)}
        return len(backends) == 1 and _numbers(own) == _numbers(scenario)

    def replay(self, scenario: Scenario, *, log: bool) -> Replay:
        """Replays ``scenario``, with the recorded addresses of the driver as long as the driver calls are the same."""
        policy = POLICIES[scenario.policy]
        if policy.standing != "native":
            if scenario.policy not in self.prepared:
                self.prepared[scenario.policy] = policy.prepare(self.trace, self.device, self.workload)
            return policy.serve(self.workload, self.prepared[scenario.policy], scenario, log=log)
        bases = self.calibration.bases if scenario == self.recorded else None
        return self.replayer(self.workload, scenario, Beginning(self.is_recorded(scenario), bases), log=log)

    def as_trace(self, scenario: Scenario, replay: Replay) -> Simulated:
        """Returns a replay of ``scenario`` (with its log) as a trace."""
        return as_trace(replay, self.workload, self.trace, self.device, kept_start=self.is_recorded(scenario))


def _numbers(scenario: Scenario) -> tuple[Conf, Rules]:
    return parameters(POLICIES[scenario.policy], scenario.conf, scenario.torch_version)


def recorded_peak(device: DeviceTrace, curve: str) -> int | None:
    """Returns the highest recorded bytes of a curve, including memory from before the trace; None: unknown."""
    highest = max(int(device.usage[curve].max(initial=-1)), device.start[curve])
    return highest if highest >= 0 else None
