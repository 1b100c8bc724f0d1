"""Settings of a policy as the numbers that a replay needs."""

from __future__ import annotations

from typing import Any

from memdiag.allocator.policies.base import Policy
from memdiag.allocator.versions.conf import Conf
from memdiag.allocator.versions.rules import Rules, rules_for
from memdiag.sizes.cuda import MIN_BLOCK
from memdiag.trace.layout import Layout


def parameters(policy: Policy[Any], conf: str, torch_version: str) -> tuple[Conf, Rules]:
    """Returns the effective settings, and the rules of the version.

    Raises:
        MemdiagError: The allocator refuses the settings.
    """
    rules = rules_for(policy.backend, torch_version)
    return Conf.parse(policy.effective_conf(conf), policy.backend, torch_version), rules


def layout_of(conf: Conf, rules: Rules, large_grain: int = MIN_BLOCK) -> Layout:
    """Returns the settings of PyTorch's allocators that determine block sizes."""
    return Layout(
        pad=rules.pad,
        divisions=conf.divisions,
        max_split=conf.max_split,
        large_segment=conf.large_page if conf.expandable else conf.large_segment,
        expandable=conf.expandable,
        large_grain=large_grain,
    )
