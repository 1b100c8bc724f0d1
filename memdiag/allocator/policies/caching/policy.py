"""PyTorch's CUDA caching allocator, with expandable segments if the settings enable them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memdiag.allocator.engine.loop import run
from memdiag.allocator.engine.memory import LOG_ALL, LOG_NOTHING, Nodes
from memdiag.allocator.engine.model import Model, Setup
from memdiag.allocator.engine.start import with_start_allocated
from memdiag.allocator.policies.caching.pools import pools_of
from memdiag.allocator.policies.parameters import layout_of, parameters
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Beginning, Scenario
from memdiag.allocator.use_on_oom_pools import UseOnOomPools, changes_of
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import Workload
from memdiag.results.detail import Detail
from memdiag.results.prediction import Standing
from memdiag.sizes.cuda import MIN_BLOCK
from memdiag.trace.layout import Layout, allocation_sizes
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array


class CachingPolicy:
    """CUDACachingAllocator.cpp."""

    backend: str = "cuda"
    standing: Standing = "native"
    variables: tuple[str, ...] = ()

    def effective_conf(self, conf: str) -> str:
        """Returns the settings as they are."""
        return conf

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns all settings of the recording."""
        return dict(keys)

    def layout(self, conf: Conf, rules: Rules) -> Layout:
        """Returns the settings that decide the sizes of blocks."""
        return layout_of(conf, rules)

    def block_and_segment_sizes(self, sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:
        """Returns ``round_size`` and ``get_allocation_size`` of requests of ``sizes`` bytes (int64)."""
        rounded = Layout(pad=rules.pad, divisions=conf.divisions).round_size(sizes)
        if rules.one_division_is_exact and 1 in conf.divisions:
            entry = np.clip(np.frexp(np.maximum(sizes, 1).astype(np.float64))[1] - 21, 0, len(conf.divisions) - 1)
            rounded = np.where((np.asarray(conf.divisions)[entry] == 1) & (sizes > MIN_BLOCK), sizes, rounded)
        return rounded, allocation_sizes(rounded, conf.large_segment)

    def prepare(
        self,
        trace: Trace,  # noqa: ARG002 - a workload is enough
        device: DeviceTrace,  # noqa: ARG002 - a workload is enough
        workload: Workload,  # noqa: ARG002 - a workload is enough
    ) -> Beginning:
        """Returns that a replay begins as the recording does."""
        return Beginning()

    def serve(self, workload: Workload, prepared: Beginning, scenario: Scenario, *, log: bool = False) -> Replay:
        """Replays a workload.

        Raises:
            MemdiagError: The allocator refuses the settings.
        """
        conf, rules = parameters(self, scenario.conf, scenario.torch_version)
        num_calls = len(workload.op)
        if len(workload.start.base) and not prepared.keep_start:
            workload = with_start_allocated(workload)
        model = Model.of(
            workload,
            Setup(conf, rules, scenario.capacity_bytes, scenario.fraction, LOG_ALL if log else LOG_NOTHING),
            self.block_and_segment_sizes(workload.size, conf, rules),
            pools_of(workload, rules),
            first=len(workload.op) - num_calls,
            bases=prepared.bases,
        )
        use_on_oom_pools = UseOnOomPools(workload.pools, _pools(model)) if len(workload.stand_in) > 1 else None
        if use_on_oom_pools:
            for end in changes_of(workload):
                model.run(run, until=end)
                use_on_oom_pools.put_in_order(_pools(model))
        model.run(run)
        return Replay.from_columns(scenario, model.columns())

    def details(self, replay: Replay) -> tuple[Detail, ...]:  # noqa: ARG002 - nothing beyond the curves
        """Returns no details, because the policy has only the curves."""
        return ()


def _pools(model: Model) -> Nodes:
    return model.nodes[model.state.pools : model.state.streams]


CACHING = CachingPolicy()
