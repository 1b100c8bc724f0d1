"""llama.cpp's start-up log: buffers of each device, and the breakdown that newer versions print.

A device has a model buffer (the offloaded layers), a KV buffer (and a recurrent-state buffer), and a compute buffer for
the largest graph. The size of the device is in the breakdown (llama.cpp#15860) or in newer device lists; older versions
print at most the free memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from memdiag.results.finding import Fix
from memdiag.results.serving import PartKind, ServingCard
from memdiag.serving.account import Account
from memdiag.serving.case import FailedStart, flag, shown
from memdiag.serving.engines import ServerFacts
from memdiag.serving.rules import LogValue, LogValues, rule

NAME, PROGRAM = "llama.cpp", "llama.cpp"
ANCHORS = (
    "buffer size",
    "using device",
    "MiB free",
    "VRAM",
    "CUDA",
    "ROCm",
    "Vulkan",
    "Metal",
    "SYCL",
    "CANN",
    "n_ctx",
    "n_layer",
    "offload",
    "build",
)
SIGNS = (
    "llama_model_load",
    "load_tensors:",
    "llm_load_tensors:",
    "llama_new_context_with_model",
    "llama_context:",
    "llama_kv_cache",
    "memory breakdown",
)
START = re.compile(r"load_tensors: (?:loading model tensors|ggml ctx size)")
KEPT = ("total", "free")
_DEVICE = r"(?P<who>(?:CUDA|ROCm|Vulkan|Metal|MTL|SYCL|CANN|MUSA|HIP|RPC\[[^\]]{1,60}\]|OpenCL)\d*)"
RULES = (
    rule(rf"using device {_DEVICE} \(.*?\) - <free:mib> MiB free"),
    rule(rf"\b{_DEVICE} model buffer size\s*=\s*<weights:size>", adds=True),
    rule(rf"llm_load_tensors:\s+{_DEVICE} buffer size\s*=\s*<weights:size>", adds=True),
    rule(rf"\b{_DEVICE} KV buffer size\s*=\s*<kv:size>", adds=True),
    rule(rf"\b{_DEVICE} RS buffer size\s*=\s*<state:size>", adds=True),
    rule(rf"\b{_DEVICE} (?:output|LoRA) buffer size\s*=\s*<output:size>", adds=True),
    rule(rf"\b{_DEVICE} compute buffer size\s*=\s*<compute:size>"),
    rule(
        rf"- {_DEVICE} \(.*?\)\s*[|:]\s*<total:mib> = <end:mib> \+ \(\s*\d+ =\s*<model:mib> \+\s*<context:mib> \+"
        r"\s*<scratch:mib>\) \+\s*<unaccounted:mib>(?!\d)"
    ),
    rule(r"Device \d+: .*?VRAM: <total:size>"),
    rule(r"n_ctx\s*=\s*<length:int>", of_server=True),
    rule(r"n_(?:ctx_seq|ctx_per_seq)\s*=\s*<sequence:int>", of_server=True),
    rule(r"n_seq_max\s*=\s*<sequences:int>", of_server=True),
    rule(r"offloaded <offloaded:int>/<layers:int> layers to GPU", of_server=True),
    rule(r"build(?:_info)?\s*[:=]\s*b?<version:word>", of_server=True),
)
_RESERVE = 1 << 30  # most a breakdown may leave unexplained and still be of a loaded model


def card(values: LogValues, server: LogValues, total: LogValue | None) -> ServingCard | None:
    """Returns the account of a device."""
    del server
    account, get = Account(values.who), values.get
    size, end, unaccounted = get("total") or total, get("end"), get("unaccounted")
    if end is not None and unaccounted is not None and 0 <= unaccounted.value <= 2 * _RESERVE:
        account.add("weights", get("model"))
        account.add("kv_cache", get("context"))
        account.add("activations", get("scratch"))
        account.add("free", end)
        return account.close(size, "other")
    if all(get(name) is None for name in ("weights", "kv", "state", "compute")):
        return None
    free = get("free")
    if size is not None and free is not None:
        account.add_computed("before_start", size.bytes - free.bytes, free, is_given=not size.line)
    account.add("weights", get("weights"))
    account.add("kv_cache", *(reading for name in ("kv", "state") if (reading := get(name)) is not None))
    account.add("activations", get("compute"))
    account.add("other", get("output"))
    rest: PartKind = "unknown" if get("weights") is None else "free" if size is None or free else "free_or_outside"
    if size is not None:
        return account.close(size, rest)
    return account.close(free, rest, whole="free_at_start")


def facts(server: LogValues, cards: Sequence[LogValues]) -> ServerFacts:
    """Returns the capacity for requests and the settings."""
    del cards
    length, sequences = server.size("length"), server.size("sequences")
    offloaded = server.number("offloaded")
    settings = {"-c": float(length)} if length else {}
    if offloaded is not None:
        settings["-ngl"] = offloaded
    each = server.size("sequence") or length
    concurrency = float(sequences) if sequences else (1.0 if length else None)
    return ServerFacts(server.word("version"), length, None, concurrency, each, settings)


def fixes(case: FailedStart) -> Iterator[Fix]:
    """Yields the flags to change."""
    requested, free = case.field("requested_bytes"), case.values.size("free")
    weights, kv = case.values.size("weights"), case.values.size("kv")
    offloaded, length = case.server.size("offloaded"), case.server.size("length")
    if requested is None or free is None:
        return
    used = sum(case.values.size(name) or 0 for name in ("weights", "kv", "state", "compute"))
    if weights is None and offloaded:  # the model buffer itself failed
        fits = int(offloaded * max(free - requested // 8, 0) / requested)
        if 0 < fits < offloaded:
            yield flag("llama.layers", f"-ngl {fits}", requested=shown(requested), free=shown(free), layers=offloaded)
        return
    missing = used + requested - free
    if missing <= 0:
        return
    if weights and offloaded:
        fewer = -(-missing * offloaded // weights)
        if fewer < offloaded:
            yield flag(
                "llama.layers-fewer", f"-ngl {offloaded - fewer}", missing=shown(missing), fewer=fewer, layers=offloaded
            )
    context = kv or requested
    if length and context > missing:
        yield flag(
            "llama.context", f"-c {length * (context - missing) // context // 256 * 256}", missing=shown(missing)
        )
