"""The interface of an allocator policy. A policy decides where memory comes from; the engine executes the decision.

A policy is an object with these members, in its own folder and with one line in ``POLICIES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
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

Prepared = TypeVar("Prepared")


class Policy(Protocol[Prepared]):
    """How an allocator serves the requests of a program.

    ``Prepared`` holds the facts about the program that the policy needs in addition to its requests.
    """

    @property
    def backend(self) -> str:
        """The backend whose settings and versions apply: "cuda", "npu" or "mindspeed"."""

    @property
    def standing(self) -> Standing:
        """How far its results can be trusted."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of environment variables that it reads; settings contain them as ``NAME=VALUE``."""

    def effective_conf(self, conf: str) -> str:
        """Returns the effective settings for a user's ``conf``: without variables, with those that the policy adds."""

    def inherit_conf(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings of a recording (value by key of the backend) that this policy uses too."""

    def layout(self, conf: Conf, rules: Rules) -> Layout:
        """Returns the settings that decide the sizes of blocks in a simulated trace."""

    def block_and_segment_sizes(self, sizes: Array, conf: Conf, rules: Rules) -> tuple[Array, Array]:
        """Returns the sizes of blocks, and of the segments that new blocks need (int64, bytes).

        Args:
            sizes: Bytes of the requests (int64).
            conf: Effective settings.
            rules: Rules of the version.
        """

    def prepare(self, trace: Trace, device: DeviceTrace, workload: Workload) -> Prepared:
        """Returns the facts about a recorded program that the policy needs; usable for several replays."""

    def serve(self, workload: Workload, prepared: Prepared, scenario: Scenario, *, log: bool = False) -> Replay:
        """Replays a workload.

        Args:
            workload: The requests of the program.
            prepared: Result of ``prepare`` for this workload.
            scenario: Settings, version and device; its policy is only a name for the result.
            log: Whether to keep the allocator's own entries.

        Raises:
            MemdiagError: The policy refuses the settings.
        """

    def details(self, replay: Replay) -> tuple[Detail, ...]:
        """Returns the details of a replay that only this policy has, in addition to the curves of all policies."""
