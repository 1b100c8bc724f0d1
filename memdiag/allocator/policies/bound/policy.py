"""The lower bound: the largest number of bytes live at one moment. Each live tensor has a separate range."""

from __future__ import annotations

from collections.abc import Mapping

from memdiag.allocator.policies.caching.policy import CACHING
from memdiag.allocator.policies.static_plan.replay import replay_bound
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


class BoundPolicy:
    """Lower bound of every allocator that rounds to 512 bytes."""

    backend: str = CACHING.backend
    standing: Standing = "bound"
    variables: tuple[str, ...] = ()

    def effective_conf(self, conf: str) -> str:
        """Returns the settings unchanged; they have no effect."""
        return conf

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns all settings of the recording."""
        return dict(keys)

    def layout(self, conf: Conf, rules: Rules) -> Layout:
        """Returns the layout of PyTorch's allocator."""
        return CACHING.layout(conf, rules)

    def block_and_segment_sizes(
        self,
        sizes: Array,
        conf: Conf,  # noqa: ARG002 - the same with all settings
        rules: Rules,  # noqa: ARG002 - the same with all settings
    ) -> tuple[Array, Array]:
        """Returns the rounded requests, each of which is a range too (int64, bytes)."""
        rounded = Layout().round_size(sizes)
        return rounded, rounded

    def prepare(self, trace: Trace, device: DeviceTrace, workload: Workload) -> None:
        """Returns None: the lower bound does not depend on the program's phases."""

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
            MemdiagError: PyTorch's allocator refuses the settings.
        """
        return replay_bound(workload, self, scenario, log=log)

    def details(self, replay: Replay) -> tuple[Detail, ...]:  # noqa: ARG002 - nothing beyond the curves
        """Returns no details, because the policy has only the curves."""
        return ()


BOUND = BoundPolicy()
