"""Best fit with coalescing: it always splits the smallest sufficient free block, and merges free neighbours.

No allocator for PyTorch works like this. Compared with the caching allocator, it shows the effect of size classes:
pools for small and large requests, segments of 2 and 20 MiB, and remainders that stay with their block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from memdiag.allocator.engine.memory import LOG_ALL, LOG_NOTHING
from memdiag.allocator.engine.model import Model, Setup
from memdiag.allocator.engine.start import with_start_allocated
from memdiag.allocator.policies.best_fit.loop import run
from memdiag.allocator.policies.caching.pools import pools_of
from memdiag.allocator.policies.parameters import layout_of, parameters
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import Workload
from memdiag.errors import MemdiagError
from memdiag.results.detail import Detail
from memdiag.results.prediction import Standing
from memdiag.sizes.cuda import SEGMENT_GRAIN
from memdiag.text import Texts, phrase_of
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array

TEXTS: Texts = {
    "settings": {
        "en": "the policy best-fit has no settings, but {conf} was given",
        "zh": "策略 best-fit 没有设置，但给出了 {conf}",  # noqa: RUF001 - Chinese has full-width signs
    },
    "settings.hint": {"en": "remove --conf", "zh": "请去掉 --conf"},
}


class BestFitPolicy:
    """One pool for all sizes of a stream; a new segment is as large as the request, in units of 2 MiB."""

    backend: str = "cuda"
    standing: Standing = "uncalibrated"
    variables: tuple[str, ...] = ()

    def effective_conf(self, conf: str) -> str:
        """Returns the settings as they are; ``serve`` refuses any."""
        return conf

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002 - it has no settings
        """Returns no settings, because the policy has none."""
        return {}

    def layout(self, conf: Conf, rules: Rules) -> Layout:
        """Returns the settings that determine block sizes: all blocks split as in expandable segments."""
        return replace(layout_of(conf, rules), expandable=True)

    def block_and_segment_sizes(
        self,
        sizes: Array,
        conf: Conf,  # noqa: ARG002 - it has no settings
        rules: Rules,  # noqa: ARG002 - it has no settings
    ) -> tuple[Array, Array]:
        """Returns requests rounded up to 512 bytes, and those rounded up to 2 MiB (int64, bytes)."""
        rounded = Layout().round_size(sizes)
        return rounded, -(-rounded // SEGMENT_GRAIN) * SEGMENT_GRAIN

    def prepare(self, trace: Trace, device: DeviceTrace, workload: Workload) -> None:
        """Returns None: the policy needs only the requests."""

    def serve(
        self,
        workload: Workload,
        prepared: None,  # noqa: ARG002 - nothing is prepared
        scenario: Scenario,
        *,
        log: bool = False,
    ) -> Replay:
        """Replays a workload.

        Raises:
            MemdiagError: There are settings.
        """
        if scenario.conf.strip(", "):
            raise MemdiagError(phrase_of(TEXTS, "settings", conf=str(scenario.conf)), phrase_of(TEXTS, "settings.hint"))
        conf, rules = parameters(self, "", scenario.torch_version)
        num_calls = len(workload.op)
        if len(workload.start.base):
            workload = with_start_allocated(workload)
        model = Model.of(
            workload,
            Setup(conf, rules, scenario.capacity_bytes, scenario.fraction, LOG_ALL if log else LOG_NOTHING),
            self.block_and_segment_sizes(workload.size, conf, rules),
            pools_of(workload, rules),
            first=len(workload.op) - num_calls,
        )
        model.run(run)
        return Replay.from_columns(scenario, model.columns())

    def details(self, replay: Replay) -> tuple[Detail, ...]:  # noqa: ARG002 - nothing beyond the curves
        """Returns no details, because the policy has only the curves."""
        return ()


BEST_FIT = BestFitPolicy()
