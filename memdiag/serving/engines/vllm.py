"""vLLM's start-up log, V0 and V1.

The budget is ``gpu_memory_utilization`` times the memory of the card. It holds the weights, the activation peak of the
profile run, memory outside PyTorch and the KV cache. CUDA graphs are captured after that, outside the budget. Since
0.19 or 0.21, an estimate of them is deducted before the KV cache is sized (vllm#30515). V0 prints the whole division in
one line (worker.py). V1 prints weights and KV cache, and since 0.11 the division at the end of the start
(gpu_worker.py). Newer versions print weights and memory outside PyTorch there as one number, "consumed memory".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from memdiag.diagnosis import memory_fraction
from memdiag.diagnosis.memory_fraction import fraction_down
from memdiag.results.finding import Fix
from memdiag.results.serving import PartKind, ServingCard
from memdiag.serving.account import Account
from memdiag.serving.case import FailedStart, flag, shown
from memdiag.serving.engines import ServerFacts
from memdiag.serving.rules import LogValue, LogValues, rule
from memdiag.units import MIB, fraction_up

NAME, PROGRAM = "vllm", "vLLM"
ANCHORS = (
    "weights t",  # model weights take, Loading model weights took
    "Model loading took",
    "total_gpu_memory",
    "memory_utilization",
    "gpu-memory-utilization",
    "total_gpu_memory",
    "non_torch_memory",
    "activation peak",
    "_kv_cache_memory",
    "KV cache",
    "GPU blocks",
    "cuda blocks",
    "npu blocks",
    "Maximum concurrency",
    "raph",
    "Free memory on device",
    "free memory",
    "requested memory",
    "for weight",
    "consumed memory",
    "LLM engine (v",
    "vLLM API server version",
    "vLLM version",
    "non KV cache memory",
    "init engine",
    "max_model_len",
    "max-model-len",
    "max_seq_len",
    "max_num_seqs",
    "max-num-seqs",
    "max_num_batched_tokens",
    "max-num-batched-tokens",
    "total capacity of",
)
SIGNS = (
    "vLLM API server",
    "LLM engine (v",
    "gpu_model_runner.py",
    "gpu_worker.py",
    "kv_cache_utils.py",
    "model_runner.py:",
    "worker.py:",
    "the current vLLM instance can use",
    "GPU KV cache size:",
    "executor_base.py",
)
START = re.compile(r"Initializing an? (?:V[01] )?LLM engine")
KEPT = ("total",)

DIVISION = (
    r"Actual usage(?: is)?:? "
    r"(?:<weights:size> for weights?,|<consumed:size> for consumed memory \(weights \+ non-torch\),)"
    r" <activations:size> for peak activation,"
    r"(?: <non_torch:size> for non-torch memory,)?(?: and)? <graphs:size> for (?:CUDA ?Graph|NPU graph) memory"
)
RULES = (
    # V0
    rule(r"total_gpu_memory \(<total:size>\) x gpu_memory_utilization \(<utilization:float>\) = <budget:size>"),
    rule(r"total_gpu_memory:?\s+<total:size>"),
    rule(r"gpu_memory_utilization\s+<utilization:float>\s*$"),
    rule(r"the current vLLM instance can use\s+<budget:size>"),
    rule(r"model weights take\s+<weights:size>"),
    rule(r"non_torch_memory(?: takes)?\s+<non_torch:size>"),
    rule(r"PyTorch activation peak memory(?: takes)?\s+<activations:size>"),
    rule(r"(?:reserved for KV Cache is|available_kv_cache_memory)\s+<kv:size>"),
    rule(r"#\s*(?:GPU|cuda|npu) blocks: <blocks:int>", of_server=True),
    rule(r"Graph capturing finished in \d+ secs?\.?,? took <graphs:size>"),
    # V1
    rule(r"(?:Model loading took|Loading model weights took) <weights:size>"),
    rule(r"Available KV cache memory: <kv:size>"),
    rule(r"Estimated (?:CUDA|NPU) graph memory: <graphs_estimate:size>"),
    rule(r"graph pool memory: <graphs:size> \(actual\), <graphs_estimate:size> \(estimated\)"),
    rule(
        r"total consumed \(from mem_get_info\): <consumed:size>",
    ),
    rule(r"non-torch forward increase memory: <non_torch:size>"),
    rule(r"torch peak memory increase: <activations:size>"),
    rule(r"\bweights memory: <weights:size>"),
    rule(r"Requested memory: <utilization:float> \(util\), <budget:size>"),
    rule(r"Initial free memory:? <free:size>"),
    rule(r"Free memory on device(?: \w+:\d+)? \(<free:gib>/<total:gib> GiB\) on startup"),
    rule(r"Desired GPU memory utilization is \(<utilization:float>, <budget:size>\)"),
    rule(r"desired GPU memory utilization \(<utilization:float>, <budget:size>\)"),
    rule(DIVISION),
    rule(r"[Cc]urrent kv cache memory in use is (?:<kv:size>|<kv_used:bytes> bytes)"),
    rule(r"(?:reserved|Reserved) <kv:size> memory for KV Cache as specified"),
    rule(r"--kv-cache-memory=<suggested_kv:bytes>`? \([\d.]+ GiB\) to fit"),
    rule(r"GPU KV cache size: <tokens:int> tokens", of_server=True),
    rule(r"Maximum concurrency for <length:int> tokens per request: <concurrency:float>x", of_server=True),
    rule(r"Tried to allocate <requested:size>\. GPU \d+ has a total capacity"),
    rule(r"capacity of <total:size> of which <free_at_failure:size> is free"),
    # versions and settings
    rule(r"LLM engine \(v<version:word>\)", of_server=True),
    rule(r"vLLM API server version <version:word>", of_server=True),
    # not the value that vLLM 0.21 and newer call equivalent in a note on graphs
    rule(
        r"(?<!equivalent to -)(?<!equivalent to `-)['\"\s-]gpu[_-]memory[_-]utilization['\"]?[:= ]+<utilization:float>",
        of_server=True,
    ),
    rule(r"gpu-memory-utilization from <utilization:float> to", of_server=True),
    rule(r"\bmax[_-](?:seq|model)[_-]len['\"]?[:= ]+<length:int>", of_server=True),
    rule(r"\bmax[_-]num[_-]seqs['\"]?[:= ]+<seqs:int>", of_server=True),
    rule(r"\bmax[_-]num[_-]batched[_-]tokens['\"]?[:= ]+<batched:int>", of_server=True),
)
_OF_CARDS = ("weights", "kv", "graphs", "budget", "consumed", "free")
_NEWEST_DEFAULT = 0.92  # of gpu_memory_utilization, vLLM 0.33
_MOST_CAPTURED = 64  # the batch size to suggest, far below vLLM's 512
_ROUNDING = 30 * MIB  # of three figures with two decimals of GiB


def card(values: LogValues, server: LogValues, total: LogValue | None) -> ServingCard | None:
    """Returns the account of a card."""
    if not any(name in values.found for name in _OF_CARDS):
        return None
    total = values.get("total") or server.get("total") or total
    account, get = Account(values.who), values.get
    budget = _budget(values, server, total)
    free, before = get("free"), 0
    if free is not None and total is not None:
        before = total.bytes - free.bytes
        account.add_computed("before_start", before, free)
    consumed, weights, graphs = get("consumed"), get("weights"), get("graphs")
    account.add("weights", weights)
    if consumed is not None and weights is not None:
        account.add_computed("other", consumed.bytes - weights.bytes, consumed)
    elif consumed is not None:
        account.add("weights_and_other", consumed)
    else:
        _add_other(account, get("non_torch"), graphs)
    kv = get("kv") or get("kv_used")
    _add_activations(account, values, kv, budget and budget + before)
    requested = get("requested")
    if requested is not None and kv is not None and _is_cache(requested.bytes, kv.bytes):
        pass  # the allocation that failed
    elif kv is not None and kv.value > 0:
        account.add("kv_cache", kv)
    elif kv is None and budget is not None and get("suggested_kv") is not None:
        account.add_computed("kv_cache", budget - account.sum_bytes + before, get("suggested_kv"))
    if get("activations") is None and budget is not None and weights is not None and kv is not None:
        estimate = get("graphs_estimate") if _deducts_graphs(server) else None
        left = budget - weights.bytes - kv.bytes - (estimate.bytes if estimate else 0)
        if left > 0:
            account.add_computed("activations_and_other", left, kv, is_given=not (total and total.line))
    if graphs is None or graphs.value >= 0:
        account.add("graphs", graphs)
    at_failure = get("free_at_failure")
    account.add("free", at_failure)
    is_whole = at_failure is None and account.has(
        ("weights", "weights_and_other"), "kv_cache", ("activations", "activations_and_other")
    )
    if total is None and free is not None:
        return account.close(free, "free" if is_whole else "unknown", whole="free_at_start", budget=budget)
    rest: PartKind = "unknown" if not is_whole else "free" if free is not None else "free_or_outside"
    return account.close(total, rest, budget=budget)


def _is_cache(requested: int | None, kv: int | None) -> bool:
    """Returns whether an allocation of this size is vLLM's KV cache, which is one tensor or few."""
    return bool(kv and requested and 2 * requested > kv)


def _add_other(account: Account, non_torch: LogValue | None, graphs: LogValue | None) -> None:
    """Adds the memory outside PyTorch.

    Graphs of a negative size mean that capture released memory that vLLM had counted here (vllm#25683). A negative
    size itself is no memory.
    """
    if non_torch is None or non_torch.value < 0:
        return
    if graphs is not None and graphs.value < 0:
        account.add_computed("other", max(non_torch.bytes + graphs.bytes, 0), non_torch)
    else:
        account.add("other", non_torch)


def _add_activations(account: Account, values: LogValues, kv: LogValue | None, budget: int | None) -> None:
    """Adds the activation peak, without the estimate of graphs that newer versions include in it (vllm#57936)."""
    activations, estimate = values.get("activations"), values.get("graphs_estimate")
    if estimate is not None and kv is not None and activations is not None and budget is not None:
        left = budget - account.sum_bytes - activations.bytes - kv.bytes
        if abs(left) < _ROUNDING and 0 < estimate.bytes < activations.bytes:
            account.add_computed("activations", activations.bytes - estimate.bytes, activations)
            return
    account.add("activations", activations)


def _budget(values: LogValues, server: LogValues, total: LogValue | None) -> int | None:
    """Returns the memory that vLLM allows itself."""
    printed = values.size("budget")
    utilization = values.number("utilization") or server.number("utilization")
    if printed is not None or total is None or utilization is None:
        return printed
    return round(total.value * utilization)


def _deducts_graphs(server: LogValues) -> bool:
    """Returns whether this version deducts its estimate of graphs before it sizes the KV cache (0.21, by default)."""
    numbers = re.findall(r"\d+", server.word("version"))[:2]
    return len(numbers) < 2 or (int(numbers[0]), int(numbers[1])) >= (0, 21)


def facts(server: LogValues, cards: Sequence[LogValues]) -> ServerFacts:
    """Returns the capacity for requests and the settings."""
    number = server.number
    values = {
        "--gpu-memory-utilization": next((u for c in cards if (u := c.number("utilization"))), number("utilization")),
        "--max-model-len": number("length"),
        "--max-num-seqs": number("seqs"),
        "--max-num-batched-tokens": number("batched"),
    }
    return ServerFacts(
        server.word("version"),
        server.size("tokens"),
        server.size("blocks"),
        number("concurrency"),
        server.size("length"),
        {name: value for name, value in values.items() if value is not None},
    )


def fixes(case: FailedStart) -> Iterator[Fix]:
    """Yields the flags to change."""
    if case.dialect == "vllm_kv":
        yield from _for_kv_cache(case)
    elif case.field("free_bytes") is not None and case.dialect == "vllm_startup_free":
        yield from _for_free_at_start(case)
    else:
        yield from _for_allocation(case)


def _utilization(case: FailedStart, default: float) -> float:
    return case.values.number("utilization") or case.server.number("utilization") or default


def _most(case: FailedStart) -> float | None:
    """Returns the highest utilization that this card can give, from the memory that was free at the start."""
    free = case.values.size("free")
    if case.total_bytes is None:
        return None
    return (free if free is not None else 0.97 * case.total_bytes) / case.total_bytes


def _for_kv_cache(case: FailedStart) -> Iterator[Fix]:
    available = case.field("free_bytes")
    if available is None:
        available = case.values.size("kv")
    needed = case.field("requested_bytes")
    now, total, most = _utilization(case, _NEWEST_DEFAULT), case.total_bytes, _most(case)
    if needed is None and available is not None and available < 0:
        needed = 0
    if needed is not None and available is not None and total is not None and most is not None:
        wanted = fraction_up(now + (needed - available) / total)
        if float(wanted) <= most:
            yield flag(
                "vllm.utilization-up",
                f"--gpu-memory-utilization {wanted}",
                needed=shown(needed),
                available=shown(available),
                now=f"{now:.2f}",
                total=shown(total),
            )
    length, fits = case.field("max_seq_len"), case.field("estimated_max_len")
    if fits is None and length and needed and available and available > 0:
        fits = length * available // needed // 16 * 16
    if fits:
        yield flag("vllm.length", f"--max-model-len {fits}", available=shown(available), length=length or 0, fits=fits)


def _for_free_at_start(case: FailedStart) -> Iterator[Fix]:
    free, total = case.field("free_bytes"), case.field("total_bytes") or case.total_bytes
    if free and total:
        most = fraction_down(free / total)
        yield flag(
            "vllm.utilization-free",
            f"--gpu-memory-utilization {most}",
            free=shown(free),
            total=shown(total),
            most=most,
        )


def _for_allocation(case: FailedStart) -> Iterator[Fix]:
    """Yields flags for an allocation that failed after the KV cache was sized: in capture or in warm-up."""
    missing, total, now = case.missing_bytes, case.total_bytes, _utilization(case, memory_fraction.DEFAULT)
    kv, requested = case.values.size("kv"), case.field("requested_bytes")
    failed = memory_fraction.allocates_cache(case.text) or _is_cache(requested, kv)
    later = memory_fraction.later_bytes(is_cache=failed)
    wanted = memory_fraction.lower_utilization(now, total, missing, is_cache=failed)
    if kv is None:
        pass  # it failed before the KV cache was sized, so the fraction does not matter
    elif missing is None or not total:
        yield flag("vllm.utilization-lower", f"--gpu-memory-utilization {wanted}", now=f"{now:.2f}")
    else:
        yield flag(
            "vllm.utilization-down",
            f"--gpu-memory-utilization {wanted}",
            missing=shown(missing),
            requested=shown(requested),
            free=shown(case.field("free_bytes")),
            later=shown(later),
            step=shown(round((now - float(wanted)) * total)),
        )
    if missing is not None and kv is not None:
        smaller = kv - missing - later
        if smaller > 0:
            yield flag(
                "vllm.kv-bytes",
                f"--kv-cache-memory-bytes {smaller}",
                kv=shown(kv),
                missing=shown(missing),
                later=shown(later),
            )
    captured = case.server.number("seqs") or _MOST_CAPTURED + 1
    if captured > _MOST_CAPTURED and ("raph" in case.text or "capture" in case.text):
        yield flag("vllm.graph-sizes", f"--max-cudagraph-capture-size {_MOST_CAPTURED}")
