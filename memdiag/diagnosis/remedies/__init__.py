"""The table of remedies, for messages and for traces.

Each remedy has the same instruction, condition, cost and line to paste on every surface. ``memdiag oom`` and the
analyzers describe a program as a ``Situation`` and ask ``offer`` for a remedy by name. ``offer`` returns None if the
remedy does not apply or is already in effect. A surface can replace the general condition by a more precise one.

Remedies of one program or framework (a switch of a serving engine, a flag of XLA) stay with the dialect or program
that they belong to, in ``memdiag/oom``. Those of one finding stay with its analyzer.
"""

from __future__ import annotations

from dataclasses import replace

from memdiag.diagnosis.remedies.model import AllocatorSetting, Remedy, Situation
from memdiag.registry import Registry
from memdiag.results.finding import Fix

_HERE = "memdiag.diagnosis.remedies"

REMEDIES: Registry[Remedy] = Registry(
    "remedy",
    Remedy,
    {
        "expandable-segments": f"{_HERE}.expandable_segments:ENABLE",
        "expandable-check": f"{_HERE}.expandable_segments:CHECK",
        "upgrade": f"{_HERE}.expandable_segments:UPGRADE",
        "smaller-pages": f"{_HERE}.block_sizes:SMALLER_PAGES",
        "default-placement": f"{_HERE}.block_sizes:DEFAULT_PLACEMENT",
        "split-limit": f"{_HERE}.block_sizes:SPLIT_LIMIT",
        "rounded-sizes": f"{_HERE}.block_sizes:ROUNDED_SIZES",
        "exact-sizes": f"{_HERE}.block_sizes:EXACT_SIZES",
        "lifetime-pools": f"{_HERE}.lifetime_pools:OPTION",
        "lifetime-pools-variable": f"{_HERE}.lifetime_pools:VARIABLE",
        "no-lifetime-pools": f"{_HERE}.lifetime_pools:TURN_OFF",
        "hccl-room": f"{_HERE}.lifetime_pools:HCCL_ROOM",
        "workspaces-first": f"{_HERE}.placement:WORKSPACES_FIRST",
        "long-lived-first": f"{_HERE}.placement:LONG_LIVED_FIRST",
        "padded-inputs": f"{_HERE}.placement:PADDED_INPUTS",
        "steady-sizes": f"{_HERE}.placement:STEADY_SIZES",
        "empty-cache": f"{_HERE}.placement:EMPTY_CACHE",
        "leave-cache": f"{_HERE}.placement:LEAVE_CACHE",
        "before-waking": f"{_HERE}.placement:BEFORE_WAKING",
        "stream-reuse": f"{_HERE}.streams:REUSE",
        "stream-references": f"{_HERE}.streams:REFERENCES",
        "limited-gathers": f"{_HERE}.streams:LIMITED_GATHERS",
        "stream-wait": f"{_HERE}.streams:WAIT",
        "less-waiting": f"{_HERE}.streams:LESS_WAITING",
        "one-stream": f"{_HERE}.streams:ONE_STREAM",
        "compile-without-graphs": f"{_HERE}.private_pools:COMPILE",
        "shared-graph-pool": f"{_HERE}.private_pools:SHARE",
        "no-graphs": f"{_HERE}.private_pools:EAGER",
        "smaller-batch": f"{_HERE}.demand:SMALLER_BATCH",
        "shorter-sequences": f"{_HERE}.demand:SHORTER",
        "recompute": f"{_HERE}.demand:RECOMPUTE",
        "recompute-megatron": f"{_HERE}.demand:RECOMPUTE_MEGATRON",
        "compiler-budget": f"{_HERE}.demand:COMPILER_BUDGET",
        "fewer-samples": f"{_HERE}.demand:FEWER_SAMPLES",
        "physical-batch": f"{_HERE}.demand:PHYSICAL_BATCH",
        "no-graph": f"{_HERE}.demand:NO_GRAPH",
        "see-live": f"{_HERE}.demand:SEE_LIVE",
        "one-tensor": f"{_HERE}.demand:ONE_TENSOR",
        "attention": f"{_HERE}.demand:ATTENTION",
        "loss-in-chunks": f"{_HERE}.demand:LOSS_IN_CHUNKS",
        "evaluation": f"{_HERE}.demand:EVALUATION",
        "outputs-to-host": f"{_HERE}.demand:OUTPUTS",
        "generation": f"{_HERE}.demand:GENERATION",
        "smaller-model": f"{_HERE}.demand:SMALLER_MODEL",
        "offload": f"{_HERE}.demand:OFFLOAD",
        "shard": f"{_HERE}.state:SHARD",
        "tensor-parallel": f"{_HERE}.state:TENSOR_PARALLEL",
        "smaller-optimizer": f"{_HERE}.state:OPTIMIZER",
        "fused-optimizer": f"{_HERE}.state:FUSED",
        "one-by-one": f"{_HERE}.state:ONE_BY_ONE",
        "other-step": f"{_HERE}.state:OTHER_STEP",
        "shard-optimizer": f"{_HERE}.state:SHARD_OPTIMIZER",
        "shard-early": f"{_HERE}.state:SHARD_EARLY",
        "load-to-host": f"{_HERE}.state:LOAD_TO_HOST",
        "map-file": f"{_HERE}.state:MAP_FILE",
        "take-over": f"{_HERE}.state:TAKE_OVER",
        "fewer-bits": f"{_HERE}.state:FEWER_BITS",
        "all-devices": f"{_HERE}.state:ALL_DEVICES",
        "list-processes": f"{_HERE}.devices:WHO",
        "end-processes": f"{_HERE}.devices:END",
        "another-device": f"{_HERE}.devices:ANOTHER_DEVICE",
        "own-device": f"{_HERE}.devices:OWN_DEVICE",
        "contexts": f"{_HERE}.devices:CONTEXTS",
        "container": f"{_HERE}.devices:CONTAINER",
        "raise-limit": f"{_HERE}.limits:RAISE",
        "raise-limit-variable": f"{_HERE}.limits:RAISE_BY_VARIABLE",
        "hccl-buffers": f"{_HERE}.libraries:HCCL_BUFFERS",
        "task-queue": f"{_HERE}.libraries:TASK_QUEUE",
        "nccl-buffers": f"{_HERE}.libraries:NCCL_BUFFERS",
        "nccl-channels": f"{_HERE}.libraries:NCCL_CHANNELS",
        "nccl-p2p-channels": f"{_HERE}.libraries:NCCL_P2P_CHANNELS",
        "shared-communicators": f"{_HERE}.libraries:SHARED_COMMUNICATORS",
        "single-rank-groups": f"{_HERE}.libraries:SINGLE_RANK_GROUPS",
        "no-benchmark": f"{_HERE}.libraries:NO_BENCHMARK",
        "room": f"{_HERE}.libraries:ROOM",
        "record": f"{_HERE}.recording:RECORD",
    },
)

# Remedies that a replay can judge, the most promising first.
ALLOCATOR_SETTINGS: Registry[AllocatorSetting] = Registry(
    "allocator setting",
    AllocatorSetting,
    {
        name: REMEDIES.targets[name]
        for name in ("expandable-segments", "smaller-pages", "default-placement", "split-limit", "rounded-sizes")
    },
)


def offer(name: str, situation: Situation, *, when: str = "", caveat: str = "") -> Fix | None:
    """Returns a remedy with its texts and the line to paste; None if it does not apply.

    Args:
        name: Name of the remedy in ``REMEDIES``.
        situation: Known facts about the program.
        when: A more precise condition than the general one; "": the general one.
        caveat: A more precise caveat than the general one; "": the general one.
    """
    fix = REMEDIES[name].offer(situation)
    if fix is None:
        return None
    return replace(fix, applicability=when or fix.applicability, caveat=caveat or fix.caveat)


def offers(situation: Situation, *names: str) -> tuple[Fix, ...]:
    """Returns the remedies that apply, in this order."""
    return present(*(offer(name, situation) for name in names))


def present(*fixes: Fix | None) -> tuple[Fix, ...]:
    """Returns the fixes that apply."""
    return tuple(fix for fix in fixes if fix is not None)
