"""An offline plan with offsets for permanent tensors and for one step; PyTorch's allocator serves other requests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memdiag.allocator.policies.expandable.policy import EXPANDABLE
from memdiag.allocator.policies.static_plan.plan import Planned
from memdiag.allocator.policies.static_plan.replay import PlannedReplay, make_plan, replay_planned
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import Workload
from memdiag.results.detail import Detail
from memdiag.results.prediction import Standing
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array


class StaticPlanPolicy:
    """Planned offsets; ``EXPANDABLE`` serves the other requests."""

    backend: str = EXPANDABLE.backend
    standing: Standing = "checked"
    variables: tuple[str, ...] = ()

    def effective_conf(self, conf: str) -> str:
        """Returns the settings with expandable segments."""
        return EXPANDABLE.effective_conf(conf)

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns all settings of the recording."""
        return EXPANDABLE.inherit_conf(keys)

    def layout(self, conf: Conf, rules: Rules) -> Layout:
        """Returns the layout of the fallback allocator."""
        return EXPANDABLE.layout(conf, rules)

    def block_and_segment_sizes(self, sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:
        """Returns the sizes of the fallback allocator."""
        return EXPANDABLE.block_and_segment_sizes(sizes, conf, rules)

    def prepare(self, trace: Trace, device: DeviceTrace, workload: Workload) -> Planned:
        """Returns the plan, made from the recorded steps and call sites."""
        tensor = workload.tensor
        known = (tensor >= 0) & (tensor < len(device.tensors))
        site = np.where(known, _at(device.tensors.stack, np.where(known, tensor, 0), -1), -1)
        row = workload.row
        seen = (row >= 0) & (row < device.num_events)
        step = np.where(seen, _at(device.events.step, np.where(seen, row, 0), -1), -1)
        return make_plan(workload, site, step, trace.bases.get("step", "none"))

    def serve(
        self,
        workload: Workload,  # noqa: ARG002 - the plan has the workload
        prepared: Planned,
        scenario: Scenario,
        *,
        log: bool = False,
    ) -> PlannedReplay:
        """Replays a new run of the program, which begins with the plan.

        Raises:
            MemdiagError: The fallback allocator refuses the settings.
        """
        return replay_planned(prepared, self, scenario, log=log)

    def details(self, replay: Replay) -> tuple[Detail, ...]:
        """Returns statistics on the plan in this run."""
        return (replay.planned,) if isinstance(replay, PlannedReplay) and replay.planned is not None else ()


def _at(column: Array, row: Array, otherwise: int) -> Array:
    found: Array = column[row] if len(column) else np.full(len(row), otherwise)
    return found


STATIC_PLAN = StaticPlanPolicy()
