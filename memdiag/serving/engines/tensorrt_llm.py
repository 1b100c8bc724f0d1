"""TensorRT-LLM's start-up log, of the C++ runtime and of the PyTorch backend.

The KV cache gets ``free_gpu_memory_fraction`` of the memory that is free after the engine, its context and its buffers
are allocated. Both runtimes print the memory of the card at that moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from memdiag.diagnosis.memory_fraction import fraction_down
from memdiag.results.finding import Fix
from memdiag.results.serving import PartKind, ServingCard
from memdiag.serving.account import Account
from memdiag.serving.case import FailedStart, flag, shown
from memdiag.serving.engines import ServerFacts
from memdiag.serving.rules import LogValue, LogValues, rule

NAME, PROGRAM = "tensorrt-llm", "TensorRT-LLM"
ANCHORS = ("[TensorRT-LLM]", "[TRT-LLM]", "MemUsageChange", "KV cache", "kv cache", "total capacity of")
SIGNS = ("[TensorRT-LLM]", "[TRT-LLM]")
START = re.compile(r"Initializing MPI with thread mode|Loading model weights")
KEPT = ("total",)
RULES = (
    rule(r"Loaded engine size: <weights:size>", adds=True),
    rule(r"Loaded engine size: <engine:size>"),
    rule(r"MPI size: <ranks:int>", of_server=True),
    rule(r"Rank <rank:int> is using GPU", of_server=True),
    rule(r"Allocated <context:size> for execution context memory"),
    rule(r"Allocated <buffers:size> GPU memory for (?:runtime buffers|decoder)", adds=True),
    rule(r"calculating max tokens in paged kv cache: total: <total:size>, available: <available:size>"),
    rule(r"Allocated <kv:size> for max tokens in paged KV cache(?: \(<tokens:int>\))?"),
    rule(r"Allocate <kv:bytes> bytes for k/v cache"),
    rule(r"Using <tokens:int> tokens in paged KV cache"),
    rule(r"Number of blocks in KV cache primary pool: <blocks:int>", of_server=True),
    rule(r"Number of tokens per block: <block:int>", of_server=True),
    rule(r"Memory used (?:after loading model weights|for model weights) \(inside torch\).*?: <weights:size>"),
    rule(r"Memory used after loading model weights \(outside torch\).*?: <outside:size>"),
    rule(r"Memory dynamically allocated during inference \(inside torch\).*?: <dynamic:size>"),
    rule(r"TensorRT-managed allocation in .*? now: CPU \d+, GPU <managed:mib> \(MiB\)"),
    rule(r"Peak memory during memory usage profiling \(torch \+ non-torch\): <peak:size>"),
    rule(r"available KV cache memory when calculating max tokens: <kv_allowed:size>"),
    rule(r"fraction is set <fraction:float>", of_server=True),
    rule(r"device total memory <total:size>"),
    rule(r"(?:tmp kv_mem|temporary kv cache memory during profiling) <temporary:size>"),
    rule(r"kv_cache_free_gpu_mem(?:ory)?_fraction\W+<fraction:float>", of_server=True),
    rule(r"free_gpu_memory_fraction\W+<fraction:float>", of_server=True),
    rule(r"maxSequenceLen: <length:int>", of_server=True),
    rule(r"max_seq_len=<length:int>", of_server=True),
    rule(r"maxNumSequences: <sequences:int>", of_server=True),
    rule(r"TensorRT-LLM(?: version:?)? v?<version:word>", of_server=True),
    rule(r"capacity of <total:size> of which <free_at_failure:size> is free"),
)


def card(values: LogValues, server: LogValues, total: LogValue | None) -> ServingCard | None:
    """Returns the account of a card."""
    total = values.get("total") or total
    if not any(name in values.found for name in ("weights", "kv", "available", "peak", "managed")):
        return None
    account, get = Account(values.who), values.get
    peak, available = get("peak"), get("available")
    # Lines without a rank are of all ranks, and each rank loads one engine.
    has_ranks = not values.who and ((server.size("ranks") or 1) > 1 or (server.size("rank") or 0) > 0)
    weights = (get("engine") or get("weights") if has_ranks else get("weights")) or get("managed")
    kv = _kv_cache(values)
    account.add("weights", weights)
    account.add("activations", get("context"))
    dynamic = get("dynamic")
    if peak is not None and dynamic is not None and weights is not None:
        temporary = get("temporary")
        account.add("activations", dynamic)
        account.add_computed("other", peak.bytes - account.sum_bytes - (temporary.bytes if temporary else 0), peak)
    elif peak is not None:
        outside, temporary = get("outside"), get("temporary")
        account.add("other", outside)
        used = account.sum_bytes + (temporary.bytes if temporary else 0)
        kind: PartKind = "activations" if weights and outside else "activations_and_other"
        account.add_computed(kind, peak.bytes - used, peak)
    elif total is not None and available is not None:  # includes the runtime's buffers
        account.add_computed("other", total.bytes - available.bytes - account.sum_bytes, available)
    else:
        account.add("other", None if has_ranks else get("buffers"))
    account.add("kv_cache", kv)
    return account.close(total, "free" if kv and (peak or available) else "unknown")


def _kv_cache(values: LogValues) -> LogValue | None:
    """Returns the KV cache; the PyTorch backend allocates a small one for its profile run before."""
    kv, peak = values.get("kv"), values.get("peak")
    is_temporary = kv is not None and peak is not None and kv.line < peak.line
    return values.get("kv_allowed") if kv is None or is_temporary else kv


def facts(server: LogValues, cards: Sequence[LogValues]) -> ServerFacts:
    """Returns the capacity for requests and the settings."""
    with_cache = (values for values in cards if _kv_cache(values) in {None, values.get("kv")})
    tokens = next((size for values in with_cache if (size := values.size("tokens"))), None)
    blocks, block, length = (server.size(name) for name in ("blocks", "block", "length"))
    tokens = tokens or (blocks * block if blocks and block else None)
    settings = {}
    if (fraction := server.number("fraction")) is not None:
        settings["free_gpu_memory_fraction"] = fraction
    if (sequences := server.number("sequences")) is not None:
        settings["max_batch_size"] = sequences
    concurrency = round(tokens / length, 2) if tokens and length else None
    return ServerFacts(server.word("version"), tokens, blocks, concurrency, length, settings)


def fixes(case: FailedStart) -> Iterator[Fix]:
    """Yields the flags to change."""
    cache, missing = _kv_cache(case.values), case.missing_bytes
    kv = cache and cache.bytes
    fraction = case.server.number("fraction") or 0.9
    if kv and missing is not None:
        wanted = fraction_down(fraction * (1 - missing / kv))
        yield flag(
            "trtllm.fraction",
            f"--kv_cache_free_gpu_memory_fraction {wanted}",
            kv=shown(kv),
            missing=shown(missing),
            now=f"{fraction:.2f}",
        )
