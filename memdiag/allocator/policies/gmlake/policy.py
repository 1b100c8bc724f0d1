"""GMLake: several free blocks that are too small are mapped to adjacent addresses and serve a large request."""

from __future__ import annotations

from collections.abc import Mapping

from memdiag.allocator.policies.gmlake.blocks import CHUNK
from memdiag.allocator.policies.gmlake.replay import StitchReplay, replay_stitch, rounded_sizes
from memdiag.allocator.policies.gmlake.settings import NAMES, ON_NPU, GMLakeSettings
from memdiag.allocator.policies.parameters import layout_of
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.versions.variables import settings_of
from memdiag.allocator.workload import Workload
from memdiag.results.detail import Detail
from memdiag.results.prediction import Standing
from memdiag.sizes.cuda import LARGE_SEGMENT
from memdiag.trace.layout import Layout, allocation_sizes
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array


class GMLakePolicy:
    """GMLake's patch of PyTorch's allocator; it reads PyTorch's settings too."""

    backend: str = "cuda"
    standing: Standing = "checked"
    variables: tuple[str, ...] = NAMES

    def effective_conf(self, conf: str) -> str:
        """Returns the settings without the variables among them."""
        return settings_of(conf)

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns max_split_size_mb, the only key that it reads."""
        limit = keys.get("max_split_size_mb", "")
        return {"max_split_size_mb": limit} if limit.isdigit() and int(limit) > LARGE_SEGMENT >> 20 else {}

    def layout(self, conf: Conf, rules: Rules) -> Layout:
        """Returns the settings that decide the sizes of blocks: large ones are whole chunks."""
        return layout_of(conf, rules, large_grain=CHUNK)

    def block_and_segment_sizes(
        self,
        sizes: Array,
        conf: Conf,  # noqa: ARG002 - the same with all settings
        rules: Rules,  # noqa: ARG002 - the same with all settings
    ) -> tuple[Array, Array]:
        """Returns the sizes of blocks, and of the segments where new memory is needed (int64, bytes)."""
        rounded = rounded_sizes(sizes)
        return rounded, allocation_sizes(rounded)

    def prepare(
        self,
        trace: Trace,
        device: DeviceTrace,  # noqa: ARG002 - its defaults depend on the backend only
        workload: Workload,  # noqa: ARG002 - its defaults depend on the backend only
    ) -> GMLakeSettings:
        """Returns GMLake's defaults; on NPUs those of its port in MindSpeed's SmartSwap."""
        return ON_NPU if trace.backend == "npu" else GMLakeSettings()

    def serve(
        self, workload: Workload, prepared: GMLakeSettings, scenario: Scenario, *, log: bool = False
    ) -> StitchReplay:
        """Replays a workload.

        Raises:
            MemdiagError: Settings or variables that GMLake does not read.
        """
        return replay_stitch(
            workload,
            GMLakeSettings.parse(scenario.conf, prepared),
            scenario,
            log=log,
        )

    def details(self, replay: Replay) -> tuple[Detail, ...]:
        """Returns statistics on how large requests were served."""
        return (replay.stitching,) if isinstance(replay, StitchReplay) and replay.stitching is not None else ()


GMLAKE = GMLakePolicy()
