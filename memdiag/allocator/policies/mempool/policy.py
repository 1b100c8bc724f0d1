"""PyTorch's caching allocators with ``torch.cuda.MemPool`` pools for weights, optimizer states and layers."""

from __future__ import annotations

from collections.abc import Mapping

from memdiag.allocator.policies.caching.policy import CACHING, CachingPolicy
from memdiag.allocator.policies.mempool.scopes import NAMES, MempoolReplay, Scopes, replay_mempool, scopes_of
from memdiag.allocator.policies.npu.policy import NPU
from memdiag.allocator.result import Replay
from memdiag.allocator.scenario import Scenario
from memdiag.allocator.versions import variables
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules
from memdiag.allocator.workload import Workload
from memdiag.errors import MemdiagError
from memdiag.results.detail import Detail
from memdiag.results.prediction import Standing
from memdiag.text import phrase
from memdiag.trace.layout import Layout
from memdiag.trace.model import DeviceTrace, Trace
from memdiag.trace.table import Array


class MempoolPolicy:
    """Private pools on top of one of PyTorch's own allocators.

    Args:
        base: The allocator.
    """

    standing: Standing = "checked"
    variables: tuple[str, ...] = ("scopes", "use_on_oom")

    def __init__(self, base: CachingPolicy) -> None:
        self.base = base
        self.backend = base.backend

    def effective_conf(self, conf: str) -> str:
        """Returns the settings without the variables among them."""
        return variables.settings_of(conf)

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings that the base allocator inherits."""
        return self.base.inherit_conf(keys)

    def layout(self, conf: Conf, rules: Rules) -> Layout:
        """Returns the layout of the allocator."""
        return self.base.layout(conf, rules)

    def block_and_segment_sizes(self, sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:
        """Returns the sizes of the allocator."""
        return self.base.block_and_segment_sizes(sizes, conf, rules)

    def prepare(self, trace: Trace, device: DeviceTrace, workload: Workload) -> Scopes:
        """Returns the scopes of the pools."""
        return scopes_of(trace, device, workload)

    def options(self, conf: str, scopes: Scopes) -> tuple[Scopes, bool]:
        """Returns the open scopes, and whether the default pool may use the free memory of their pools.

        ``use_on_oom=1`` in the settings creates the pools with ``MemPool(use_on_oom=True)``, and
        ``scopes=weights+layers`` opens only these scopes.

        Raises:
            MemdiagError: A variable or scope is unknown.
        """
        given, _ = variables.split(conf)
        variables.known(given, self.variables, "mempool")
        wanted = given.get("scopes", "+".join(NAMES)).split("+")
        unknown = [name for name in wanted if name not in NAMES]
        if unknown:
            raise MemdiagError(
                phrase("errors.scope", scopes=given["scopes"], unknown=repr(unknown[0])),
                phrase("errors.scope.hint", names=", ".join(NAMES)),
            )
        return scopes.only(wanted), variables.number("use_on_oom", given.get("use_on_oom", "0")) > 0

    def serve(self, workload: Workload, prepared: Scopes, scenario: Scenario, *, log: bool = False) -> MempoolReplay:
        """Replays a workload.

        Raises:
            MemdiagError: A variable or scope is unknown, or the allocator refuses the settings.
        """
        scopes, use_on_oom = self.options(scenario.conf, prepared)
        conf = self.effective_conf(scenario.conf)
        return replay_mempool(workload, scopes, self.base, scenario, conf=conf, use_on_oom=use_on_oom, log=log)

    def details(self, replay: Replay) -> tuple[Detail, ...]:
        """Returns the use of the pools; no details without a log."""
        return (replay.mempools,) if isinstance(replay, MempoolReplay) and replay.mempools is not None else ()


MEMPOOL = MempoolPolicy(CACHING)
NPU_MEMPOOL = MempoolPolicy(NPU)
