"""SGLang's start-up log.

SGLang prints the free memory of the card before and after each step (model_runner.py): loading, memory pools, graph
capture. The card's size is not printed, so the account sums up to the memory that was free when loading began. The KV
pool gets the free memory after loading less ``(1 - mem_fraction_static)`` of the memory that was free before loading:
too small a fraction leaves no pool at the start, too large a fraction leaves no room for activations at run time
(sglang-omni#292). The unit that it prints as GB is 2**30 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from memdiag.diagnosis.memory_fraction import LATER_BYTES, fraction_down
from memdiag.oom.dialects.sglang import ROOM_ABOVE_WEIGHTS
from memdiag.results.finding import Fix
from memdiag.results.serving import PartKind, ServingCard
from memdiag.serving.account import Account
from memdiag.serving.case import FailedStart, flag, shown
from memdiag.serving.engines import ServerFacts
from memdiag.serving.rules import LogValue, LogValues, rule
from memdiag.units import fraction_up

NAME, PROGRAM = "sglang", "SGLang"
ANCHORS = (
    "avail mem",
    "mem usage",
    "Cache is allocated",
    "max_total_num_tokens",
    "mem_fraction_static",
    "mem-fraction-static",
    "context_len",
    "available_gpu_mem",
    "avail_mem=",
    "max_running_requests",
    "total capacity of",
    "sglang",
)
SIGNS = (
    "Load weight begin",
    "Load weight end",
    "KV Cache is allocated. ",
    "Memory pool end",
    "max_total_num_tokens=",
    "Capture cuda graph",
)
START = re.compile(
    r"server_args=(?:ServerArgs\(|\{)"
)  # a draft model initializes and loads after it, in the same process
KEPT = ("total",)
_ANY = r"(?:[^,]*, )*?"  # what newer versions print before the numbers
RULES = (
    rule(r"Load weight begin\. avail mem=<begin:size>", first=True),
    rule(rf"Load weight end\. {_ANY}avail mem=<loaded:size>"),
    rule(rf"Load weight end\. {_ANY}avail mem=<loaded_first:size>", first=True),
    rule(r"Load weight end\. .*?mem usage=<weights_first:size>", first=True),
    rule(r"Load weight end\. .*?mem usage=<weights:size>", adds=True),
    rule(
        r"KV Cache is allocated\. (?:dtype: [\w.]+, )?(?:#tokens: \d+, )?K size: <k:size>, V size: <v:size>", adds=True
    ),
    rule(r"KV Cache is allocated\. (?:dtype: [\w.]+, )?(?:#tokens: \d+, )?KV size: <kv:size>", adds=True),
    rule(r"KV Cache is allocated\. (?:dtype: [\w.]+, )?#tokens: <tokens:int>", of_server=True),
    rule(r"Mamba Cache is allocated\..*?conv_state size: <conv:size>,? ssm_state size: <ssm:size>", adds=True),
    rule(
        r"intermediate_ssm_state_cache size: <draft_ssm:size> intermediate_conv_window_cache size: <draft_conv:size>",
        adds=True,
    ),
    # 0.5.23 and newer may size the cache after capture
    rule(r"KV cache allocated\. dtype: [\w.]+, #tokens: \d+, KV size: <kv:size>, avail mem=<end:size>"),
    rule(r"KV cache allocated\. dtype: [\w.]+, #tokens: <tokens:int>", of_server=True),
    rule(r"Memory pool end\. avail mem=<pooled:size>"),
    rule(r"Capture .*?graph begin\..*?avail mem=<capture:size>"),
    rule(r"Capture .*?graph end\..*?mem usage=<graphs:size>", adds=True),
    rule(r"Capture .*?graph end\..*?avail mem=<end:size>"),
    rule(
        r"Capturing batches \(.*?avail_mem=<captured:size>\)(?!:\s+0%)", of_server=True
    ),  # progress, only of the first rank
    rule(r"available_gpu_mem=<end:size>"),
    rule(r"capacity of <total:size> of which <end:size> is free"),
    rule(r"max_total_num_tokens=<tokens:int>", of_server=True),
    rule(r"max_running_requests=<running:int>", of_server=True),
    rule(r"context_len(?:gth)?(?:=|': )<length:int>", of_server=True),
    rule(r"\bmem_fraction_static(?:=|': )<fraction:float>", of_server=True),
    rule(r"--mem-fraction-static[= ]<fraction:float>", of_server=True),
    rule(r"cuda_graph_max_bs(?:=|(?:_decode)?': )<graph_bs:int>", of_server=True),
    rule(r"sglang(?: version)?[= ]+v?(?=\d)<version:word>", of_server=True),
)
_FREE = ("end", "captured", "capture", "pooled", "loaded")  # the latest line counts
_CACHES = ("k", "v", "kv", "conv", "ssm", "draft_ssm", "draft_conv")


def card(values: LogValues, server: LogValues, total: LogValue | None) -> ServingCard | None:
    """Returns the account of a card."""
    captured = server.get("captured") if values.who in {"", "TP0"} else None
    if captured is not None:
        values.found["captured"] = captured
    begin, weights = _begin(values), values.get("weights")
    if weights is None and begin is not None and (loaded := values.get("loaded_first")) is not None:
        weights = LogValue(begin.value - loaded.value, loaded.line, loaded.text)  # versions of 2024 print no mem usage
    caches = [reading for name in _CACHES if (reading := values.get(name)) is not None]
    if begin is None and weights is None and not caches and values.get("graphs") is None:
        return None
    total = values.get("total") or total
    account = Account(values.who)
    if total is not None and begin is not None:
        account.add_computed("before_start", total.bytes - begin.bytes, begin, is_given=not total.line)
    if values.get("weights") is None and weights is not None:
        account.add_computed("weights", weights.bytes, weights)
    else:
        account.add("weights", weights)
    account.add("kv_cache", *caches)
    graphs, capture = values.get("graphs"), values.get("capture")
    account.add("graphs", graphs)
    if graphs is None and capture is not None and captured is not None and captured.value <= capture.value:
        account.add_computed("graphs", capture.bytes - captured.bytes, captured)
    free = (reading for name in _FREE if (reading := values.get(name)) is not None)
    account.add("free", max(free, key=lambda reading: reading.line, default=None))
    rest: PartKind = "other" if weights is not None else "unknown"
    if total is not None and begin is not None:
        return account.close(total, rest)
    return account.close(begin, rest, whole="free_at_start")


def _begin(values: LogValues) -> LogValue | None:
    """Returns the memory that was free before loading: printed, or the free memory after it plus the weights."""
    begin, loaded, weights = (values.get(name) for name in ("begin", "loaded_first", "weights_first"))
    if begin is not None or loaded is None or weights is None:
        return begin
    return LogValue(loaded.value + weights.value, loaded.line, loaded.text)


def facts(server: LogValues, cards: Sequence[LogValues]) -> ServerFacts:
    """Returns the capacity for requests and the settings."""
    del cards
    tokens, length = server.size("tokens"), server.size("length")
    names = {
        "--mem-fraction-static": "fraction",
        "--max-running-requests": "running",
        "--context-length": "length",
        "--cuda-graph-max-bs": "graph_bs",
    }
    settings = {flag_: value for flag_, name in names.items() if (value := server.number(name)) is not None}
    concurrency = round(tokens / length, 2) if tokens and length else None
    return ServerFacts(server.word("version"), tokens, None, concurrency, length, settings)


def _fraction(values: LogValues) -> float | None:
    """Returns the memory fraction that the sizes of the pools imply; None if one is missing."""
    begin, pooled = _begin(values), values.get("pooled")
    if begin is None or pooled is None or not begin.value:
        return None
    return round(1 - pooled.value / begin.value, 3)


def fixes(case: FailedStart) -> Iterator[Fix]:
    """Yields the flags to change."""
    begin, weights = _begin(case.values), case.values.size("weights")
    fraction = case.server.number("fraction")
    has_no_pool = case.dialect.startswith("sglang") and ("ncrease" in case.text or "leave no GPU memory" in case.text)
    if has_no_pool and begin is not None and weights is not None:
        least = fraction_up(weights / begin.value + ROOM_ABOVE_WEIGHTS)
        if float(least) < 1:
            yield flag(
                "sglang.fraction-up",
                f"--mem-fraction-static {least}",
                weights=shown(weights),
                begin=shown(begin.bytes),
            )
        return
    missing = case.missing_bytes
    fraction = fraction or _fraction(case.values)
    if missing is not None and begin is not None and fraction:
        lower = fraction_down(fraction - (missing + LATER_BYTES) / begin.value)
        yield flag(
            "sglang.fraction-down",
            f"--mem-fraction-static {lower}",
            missing=shown(missing),
            now=f"{fraction:.3g}",
            later=shown(LATER_BYTES),
            step=shown(round((fraction - float(lower)) * begin.value)),
        )
    if "raph" in case.text:
        size = case.server.size("graph_bs")
        yield flag("sglang.graph-bs", f"--cuda-graph-max-bs {max(size // 2, 1) if size else 8}")
