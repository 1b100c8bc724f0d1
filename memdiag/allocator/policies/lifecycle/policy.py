"""MindSpeed's memory fragmentation feature: lifetime-segregated pools, chosen by hooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from memdiag.allocator.policies.lifecycle.hooks import marks_of
from memdiag.allocator.policies.lifecycle.marks import HookMarks
from memdiag.allocator.policies.lifecycle.replay import LifecycleReplay, replay_lifecycle
from memdiag.allocator.policies.parameters import layout_of
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.versions import variables
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import Workload
from memdiag.results.detail import Detail
from memdiag.results.prediction import Standing
from memdiag.settings.parsers import smallest_split
from memdiag.trace.layout import Layout, allocation_sizes
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array


@dataclass(frozen=True)
class LifecyclePolicy:
    """The allocator of MindSpeed's --memory-fragmentation.

    Attributes:
        hooks: Unit of a forward call: each layer, or the whole stack of layers (the feature since November 2024).
        is_oracle: Whether lifetimes are known instead of predicted: a tensor is long-lived if it survives its window.
            This shows the potential of the idea.
    """

    hooks: Literal["layer", "stack"] = "layer"
    is_oracle: bool = False
    backend: str = "mindspeed"
    variables: tuple[str, ...] = ("ALR_MAX",)

    @property
    def standing(self) -> Standing:
        """How far results can be trusted; "bound" with known lifetimes, because no program can know them in advance."""
        return "bound" if self.is_oracle else "checked"

    def effective_conf(self, conf: str) -> str:
        """Returns the settings without the variable among them."""
        return variables.settings_of(conf)

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns max_split_size_mb, if MindSpeed's allocator accepts it; it excludes expandable segments."""
        limit = keys.get("max_split_size_mb", "")
        fits = limit.isdigit() and int(limit) >= smallest_split(self.backend, (2, 1))
        return {"max_split_size_mb": limit} if fits else {}

    def layout(self, conf: Conf, rules: Rules) -> Layout:
        """Returns the settings that decide the sizes of blocks."""
        return layout_of(conf, rules)

    def block_and_segment_sizes(
        self,
        sizes: Array,
        conf: Conf,  # noqa: ARG002 - the same with all settings
        rules: Rules,  # noqa: ARG002 - the same with all settings
    ) -> tuple[Array, Array]:
        """Returns the sizes of blocks and of the segments of short-lived tensors (int64, bytes)."""
        rounded = Layout().round_size(sizes)
        return rounded, allocation_sizes(rounded)

    def prepare(self, trace: Trace, device: DeviceTrace, workload: Workload) -> HookMarks:
        """Returns the marks at which the hooks would run."""
        return marks_of(trace, device, workload, self.hooks)

    def serve(
        self, workload: Workload, prepared: HookMarks, scenario: Scenario, *, log: bool = False
    ) -> LifecycleReplay:
        """Replays a workload; ``ALR_MAX=BYTES`` among the settings is the variable of that name.

        Raises:
            MemdiagError: A setting or a variable is unknown.
        """
        given, settings = variables.split(scenario.conf)
        variables.known(given, self.variables, "MindSpeed's allocator")
        found = replay_lifecycle(
            workload,
            prepared,
            replace(scenario, conf=settings),
            alr_max_bytes=variables.number("ALR_MAX", given["ALR_MAX"], 1) if given else None,
            log=log,
            is_oracle=self.is_oracle,
        )
        return replace(found, conf=scenario.conf)

    def details(self, replay: Replay) -> tuple[Detail, ...]:
        """Returns the use of the pools, and the quality of the predictions."""
        if not isinstance(replay, LifecycleReplay) or replay.lifecycle is None:
            return ()
        return (replay.lifecycle.detail(),)


LIFECYCLE = LifecyclePolicy()
LIFECYCLE_STACK = LifecyclePolicy(hooks="stack")
LIFETIME_ORACLE = LifecyclePolicy(is_oracle=True)
