"""What else a program may use that some settings do not go with, by version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memdiag.findings import Severity
from memdiag.settings.model import Version
from memdiag.settings.parsers import Value
from memdiag.settings.problem import Clash
from memdiag.settings.relations import Scene
from memdiag.settings.tables import every

FEATURES: dict[str, str] = {
    "ipc": "tensors shared between processes (torch.multiprocessing, CUDA IPC)",
    "cuda-graphs": "CUDA graphs or NPU graphs",
    "mempool": "torch.cuda.MemPool and use_mem_pool",
    "sleep-mode": "the sleep mode of vLLM or vllm-ascend (enable_sleep_mode)",
    "pluggable": "an allocator of your own (CUDAPluggableAllocator, NPUPluggableAllocator)",
    "mindspeed-pools": "MindSpeed's memory fragmentation feature (MEMORY_FRAGMENTATION=1, --memory-fragmentation)",
    "snapshots": "memory snapshots (torch.cuda.memory._record_memory_history)",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One setting that does not go with one feature.

    Attributes:
        feature: A key of FEATURES.
        backends: Where it holds.
        key: The setting, which must have the value ``value``; "" for any setting at all.
        value: As the parser reads it; None: any value.
        severity: As in findings.
        title: The problem in a few words.
        why: What happens.
        fix: The remedy, in an imperative sentence.
        since: First version that it holds in.
        until: First version that it no longer holds in.
        is_dropped: Whether the setting is left out of the corrected line.
    """

    feature: str
    backends: tuple[str, ...]
    key: str
    value: Value | None
    severity: Severity
    title: str
    why: str
    fix: str = ""
    since: Version = (0, 0)
    until: Version | None = None
    is_dropped: bool = True


_GPU = ("cuda", "hip")
_EXPANDABLE = "expandable_segments"
_KEEP = "Leave expandable_segments out of processes that share tensors"

RULES: tuple[Rule, ...] = (
    Rule(
        "ipc", _GPU, _EXPANDABLE, True, "critical",
        "tensors in expandable segments cannot be shared between processes before torch 2.5",
        "sharing one raises 'Tensors allocated with expandable_segments:True cannot be shared between processes'",
        _KEEP, until=(2, 5),
    ),
    Rule(
        "ipc", _GPU, _EXPANDABLE, True, "info",
        "sharing tensors in expandable segments needs pidfd_open and pidfd_getfd",
        "Linux has them from 5.6 on; many containers forbid pidfd_getfd without CAP_SYS_PTRACE, and sharing then raises",
        "Try it once on the machine; where it raises, leave expandable_segments out", since=(2, 5), is_dropped=False,
    ),
    Rule(
        "ipc", ("npu",), _EXPANDABLE, True, "warning",
        "tensors in expandable segments cannot be shared between processes by most versions of torch_npu",
        "only new versions of torch_npu and CANN can hand over such memory",
        "Leave expandable_segments out of processes that share tensors",
    ),
    Rule(
        "ipc", _GPU, "backend", "cudaMallocAsync", "critical",
        "memory of cudaMallocAsync cannot be shared between processes", "sharing a tensor raises",
        "Use the native allocator where tensors are shared",
    ),
    Rule(
        "mempool", _GPU, _EXPANDABLE, True, "critical",
        "torch.cuda.MemPool does not work with expandable segments in torch 2.7 to 2.9",
        "making a pool raises \"torch.cuda.MemPool doesn't currently support expandable_segments\"",
        "Leave expandable_segments out, or use torch 2.10 or later", since=(2, 7), until=(2, 10),
    ),
    Rule(
        "mempool", _GPU, _EXPANDABLE, True, "warning",
        "a MemPool with an allocator of its own is not told apart from expandable segments before torch 2.7",
        "the allocator behind the pool may be bypassed, and its memory be given back by the wrong call",
        "Leave expandable_segments out, or use torch 2.10 or later", until=(2, 7),
    ),
    Rule(
        "mempool", _GPU, _EXPANDABLE, True, "info",
        "a MemPool with an allocator of its own has no expandable segments",
        "only pools without one, and the default pool, grow page by page", since=(2, 10), is_dropped=False,
    ),
    Rule(
        "mempool", _GPU, "backend", "cudaMallocAsync", "critical",
        "torch.cuda.MemPool needs the native allocator", "cudaMallocAsync knows no pools of this kind", "Leave backend out",
    ),
    Rule(
        "sleep-mode", (*_GPU, "npu"), _EXPANDABLE, True, "critical",
        "sleep mode refuses expandable_segments:True",
        "vLLM and vllm-ascend stop at start-up: their sleeping pool is a memory pool of its own, which expandable segments do not go with",
        "Leave expandable_segments out of the server's environment",
    ),
    Rule(
        "sleep-mode", _GPU, "backend", "cudaMallocAsync", "critical",
        "sleep mode needs the native allocator", "its pool is a MemPool, which cudaMallocAsync does not have", "Leave backend out",
    ),
    Rule(
        "cuda-graphs", (*_GPU, "npu"), _EXPANDABLE, True, "info",
        "graphs with expandable segments: do not release a graph's pool while tensors of it are alive",
        "the count of a pool's segments can reach 0 too early, and the next free in it ends the process (seen with torch 2.13)",
        "Keep the graph object until its outputs are gone", is_dropped=False,
    ),
    Rule(
        "cuda-graphs", (*_GPU, "npu"), "garbage_collection_threshold", None, "info",
        "garbage_collection_threshold does not reach the memory of graphs",
        "only the default pool is collected; what a graph's pool holds stays until the graph is gone", is_dropped=False,
    ),
    Rule(
        "pluggable", (*_GPU, "npu"), "", None, "warning",
        "none of these settings is read with an allocator of your own",
        "the caching allocator is not used at all, and its settings are those of an allocator that is not there",
        "Leave the variable out, so that nobody relies on it", is_dropped=False,
    ),
    Rule(
        "snapshots", _GPU, "backend", "cudaMallocAsync", "warning",
        "no memory snapshot can be recorded with cudaMallocAsync", "it does not keep track of blocks: recording history raises",
        "Leave backend out while you record",
    ),
    Rule(
        "mindspeed-pools", ("npu",), _EXPANDABLE, True, "critical",
        "MindSpeed's memory fragmentation feature must run with expandable_segments:False",
        "the feature brings an allocator of its own, whose segments are not expandable", "Choose one of them",
    ),
)  # fmt: skip


def clashes(values: Mapping[str, Value], features: tuple[str, ...], scene: Scene) -> Iterator[Clash]:
    """Yields MD658 for what in ``values`` does not go with ``features``."""
    for rule in RULES:
        if rule.feature not in features or scene.backend not in rule.backends:
            continue
        if not (rule.since <= scene.version and (rule.until is None or scene.version < rule.until)):
            continue
        if rule.key and (rule.key not in values or not _is(values[rule.key], rule.value)):
            continue
        if not values:
            continue
        changes: dict[str, str | None] = {rule.key: None} if rule.key and rule.is_dropped else {}
        yield Clash("MD658", rule.title, rule.severity, rule.why, (rule.key,) if rule.key else tuple(values), changes, rule.fix)
    if "mindspeed-pools" in features and scene.backend == "npu":
        foreign = tuple(key for key in values if key not in every("mindspeed"))
        if foreign:
            yield Clash(
                "MD658",
                f"MindSpeed's memory fragmentation feature refuses {' and '.join(foreign)}",
                "critical",
                f"it reads the same variable with a parser of its own, which knows {', '.join(every('mindspeed'))} only",
                foreign,
                dict.fromkeys(foreign),
                "Leave them out while the feature is on",
            )


def _is(value: Value, wanted: Value | None) -> bool:
    if isinstance(wanted, str):
        return str(value).replace("hip", "cuda") == wanted
    return wanted is None or value == wanted
