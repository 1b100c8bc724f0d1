"""Ollama's log: its estimate for each load, and the buffers of its runner (llama.cpp or its own engine).

The size of each card is in the lines "inference compute". The estimate ("offload") decides how many layers go to the
cards; the buffers that the runner reports afterwards are measured, and count where they exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from memdiag.results.finding import Fix
from memdiag.results.serving import ServingCard
from memdiag.serving.account import Account
from memdiag.serving.case import FailedStart, flag, shown
from memdiag.serving.engines import ServerFacts, llama_cpp
from memdiag.serving.rules import LogValue, LogValues, rule

NAME, PROGRAM = "ollama", "Ollama"
ANCHORS = (*llama_cpp.ANCHORS, "msg=", "memory.")
SIGNS = (
    'msg="inference compute"',
    "msg=offload",
    'msg="offload to',
    "ollama runner",
    'msg="starting runner"',
    "ollama-engine",
    'msg="model weights"',
    'msg="kv cache"',
    'msg="compute graph"',
    "ollama[",  # the name of its service in the system log
)
START = re.compile(r'msg="(?:starting runner|starting llama server)"|load_tensors: loading model tensors')
KEPT = ("total", "free", "available", "allocations", "kv_estimate", "graph_estimate", "only_free")
_DEVICE = r"(?:device|buffer|backend)=(?P<who>(?:CUDA|ROCm|Metal|Vulkan)\d*)"
RULES = (
    *llama_cpp.RULES,
    rule(r'msg="inference compute" .*?library=(?!cpu)\w+.*? total="<total:size>" available="<available:size>"'),
    rule(
        r'memory\.available="\[<available:size>.*?memory\.required\.kv="<kv_estimate:size>" '
        r'memory\.required\.allocations="\[<allocations:size>'
    ),
    rule(r'memory\.available="\[<available_alone:size>\]"', of_server=True),  # the estimate is for one card
    rule(r'msg="gpu memory" id=(?P<who>[\w:.-]+) library=(?!cpu)\w+ .*?\bfree="<only_free:size>"'),
    rule(r'memory\.graph\.full="<graph_estimate:size>"'),
    rule(r"layers\.model=<layers:int> layers\.offload=<offloaded:int>", of_server=True),
    rule(rf'msg="model weights" {_DEVICE} size="<weights:size>"'),
    rule(rf'msg="kv cache" {_DEVICE} size="<kv:size>"'),
    rule(rf'msg="compute graph" {_DEVICE}.*? size="<compute:size>"'),
    rule(r"--ctx-size <length:int>", of_server=True),
    rule(r"--parallel <sequences:int>", of_server=True),
    rule(r"KvSize:<length:int>", of_server=True),
    rule(r"Parallel:<sequences:int>", of_server=True),
    rule(r"(?:ollama version is|\(version) <version:word>", of_server=True),
)


def card(values: LogValues, server: LogValues, total: LogValue | None) -> ServingCard | None:
    """Returns the account of a card: measured buffers, else Ollama's estimate."""
    size, available = values.get("total") or server.get("total") or total, values.get("available")
    available = available or server.get("only_free") or server.get("available_alone")
    if values.get("weights") is not None or values.get("kv") is not None or values.get("model") is not None:
        if values.get("free") is None and available is not None:
            values.found["free"] = available
        return llama_cpp.card(values, server, size)
    allocations, kv = values.get("allocations"), values.get("kv_estimate")
    if allocations is None or kv is None:
        return None
    account = Account(values.who)
    if size is not None and available is not None:
        account.add_computed("before_start", size.bytes - available.bytes, available, is_given=not size.line)
    account.add_computed("activations_and_other", allocations.bytes, allocations)
    if size is not None:
        return account.close(size, "free")
    return account.close(available, "free", whole="free_at_start")


def facts(server: LogValues, cards: Sequence[LogValues]) -> ServerFacts:
    """Returns the capacity for requests and the settings."""
    found = llama_cpp.facts(server, cards)
    names = {"-c": "num_ctx", "-ngl": "num_gpu"}
    settings = {names[name]: value for name, value in found.settings.items()}
    return ServerFacts(found.version, found.kv_tokens, None, found.max_concurrency, found.max_model_len, settings)


def fixes(case: FailedStart) -> Iterator[Fix]:
    """Yields the settings to change."""
    for each in llama_cpp.fixes(case):
        name, _, value = each.change.partition(" ")
        yield Fix(each.title, each.kind, f"{'num_gpu' if name == '-ngl' else 'num_ctx'} {value}", caveat=each.caveat)
    offloaded, missing = case.server.size("offloaded"), case.missing_bytes
    if offloaded and missing is None and (requested := case.field("requested_bytes")):
        yield flag("ollama.layers", f"num_gpu {max(offloaded - 1, 0)}", requested=shown(requested))
