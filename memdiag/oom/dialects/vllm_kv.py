"""vLLM's KV cache at start-up: no room for one request of the longest length, or for any block; and its warm-up.

What is left of gpu_memory_utilization after weights and activations is the cache. The bytes of one request are proportional to its
length (except for layers with a sliding window or a state), so the length that fits follows from the message. Wordings: "is larger than
the maximum number of tokens" (V0), "KV cache is needed" (V1, at first with an unbalanced bracket), with an estimate since 0.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import gather, number, shown
from memdiag.oom.model import Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take

FORMATS = ("vllm_kv",)
ANCHORS = (
    "maxseqlen",
    "maxmodellen",
    "kvcacheisneeded",
    "kvcachememory",
    "forthecacheblocks",
    "whenwarmingup",
    "largeswapspace",
    "auto-fitmax",
)
EXAMPLES = (
    (
        "vllm_kv",
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, "
            "which is larger than "
            "the available KV cache memory (7.50 GiB). Based on the available memory, the estimated maximum model length is 61440."
        ),
    ),
    (
        "vllm_kv",
        (
            "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (8192). "
            "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        ),
    ),
    (
        "vllm_kv",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
    ),
)

BLOCK = 16  # tokens in a block of the cache, unless --block-size says otherwise

_SERVE = pattern(
    r"To serve at least one request with (?:the)? model'?s?'?s? max(?:imum)? (?:seq(?:uence)? len(?:gth)?|model len(?:gth)?)"
    r" (?: \(?{max_seq_len:int}\)? )?"
)
_SERVE_CLAUSES = (
    pattern(r"{requested:size} (?:of)? KV cache (?:memory)? is needed"),
    pattern(r"(?:larger than|exceeds) the available KV cache memory \(?{free:size}"),
    pattern(r"estimated maximum model length is:? {estimated_max_len:int}"),
)
_HINT = pattern(
    r"Try (?:increasing|decreasing) [`']?\w{3,30}?[`']? (?:or (?:increasing|decreasing) [`']?\w{3,30}?[`']? )? when initializing the engine"
)
_TOKENS = pattern(
    r"max(?:imum)? (?:seq len|model len(?:gth)?) \(?{max_seq_len:int}\)? is larger than the maximum number of tokens that can"
    r" be stored in (?:the)? KV cache"
    r" (?:\(?{kv_tokens:int}\)?)?"
)
_NOTHING = pattern(r"No available memory for the cache blocks")
_FIT = pattern(r"Cannot auto-fit max_?model_?len")
_WARM_UP = pattern(
    r"(?:CUDA|HIP|XPU|NPU)? out of memory occurred when warming up (?P<what>sampler|pooler|[a-z ]{3,20}?) with {requests:int}"
    r" dummy requests"
    r" (?: \.? Please try lowering [`']?max_num_seqs[`']? or [`']?gpu_memory_utilization[`']? (?:when initializing the engine)? )?"
)
_SWAP = pattern(
    r"(?P<possibly>Possibly)? Too large swap space\. {requested:size} out of the {total:size} total CPU memory is allocated"
    r" for the swap space"
)
_UTILIZATION = pattern(r"gpu[-_]memory[-_]utilization['\"]?[=:]? {utilization:float}")
_BACKENDS = (
    ("npu", re.compile(r"vllm[-_]ascend|\bnpu|torch_npu", re.IGNORECASE)),
    ("xpu", re.compile(r"xpu_|_xpu|device(?:_config)?=xpu|intel_extension", re.IGNORECASE)),
    ("hip", re.compile(r"rocm|hip_?error|hipout", re.IGNORECASE)),
    ("hpu", re.compile(r"hpu_|habana", re.IGNORECASE)),
    ("tpu", re.compile(r"tpu_(?:model|worker)", re.IGNORECASE)),
)

_MORE = Fix(
    "Or let vLLM use more of the card",
    "flag",
    "--gpu-memory-utilization 0.95",
    "vLLM (default 0.9; 0.92 in later releases), where nothing else needs the card",
    "graphs and NCCL need what is left: too much and they run out instead",
)
_FP8 = Fix("Keep the cache in 8 bits: twice the tokens", "flag", "--kv-cache-dtype fp8", "vLLM, cards with FP8", "a little accuracy")
_SPLIT = Fix(
    "Spread weights and cache over more cards",
    "flag",
    "--tensor-parallel-size 2",
    "vLLM, several cards",
    "they talk to each other in every layer",
)
_EAGER = Fix(
    "Leave out CUDA graphs, which take memory beside the cache", "flag", "--enforce-eager", "vLLM", "slower decoding of small batches"
)
_SEQS = Fix("Serve fewer requests at once: less for logits and sampling", "flag", "--max-num-seqs %d", "vLLM", "less throughput")
_TOKENS_FEWER = Fix(
    "Process fewer tokens at once: smaller activations while profiling",
    "flag",
    "--max-num-batched-tokens 2048",
    "vLLM with chunked prefill",
    "slower prefill",
)
_SMALLER = Fix(
    "Load the weights in 4 or 8 bits", "flag", "--quantization fp8", "vLLM, models that are large for the card", "a little accuracy"
)
_SWAP_LESS = Fix(
    "Reserve less host memory for swapped requests",
    "flag",
    "--swap-space %d",
    "vLLM V0 (GiB for each card)",
    "preempted requests are computed again instead",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    heads = sorted((match for head in (_SERVE, _TOKENS) for match in head.finditer(text.text)), key=lambda match: match.start())
    for match, following in zip(heads, [*heads, None][1:], strict=True):
        stop = min(following.start() if following else len(text.text), match.end() + 700)
        more, end = gather(text, match.end(), stop, _SERVE_CLAUSES if match.re is _SERVE else ())
        hint = _HINT.search(text.text, end, min(stop, end + 200))
        yield _too_long(Found(match.start(), hint.end() if hint else end, "vllm_kv", "vllm", _backend(text, match), take(match) | more))
    for match in _NOTHING.finditer(text.text):
        hint = _HINT.search(text.text, match.end(), match.end() + 100)
        yield _no_blocks(text, match, hint.end() if hint else match.end())
    for match in _FIT.finditer(text.text):
        yield _no_blocks(text, match, match.end())
    for match in _WARM_UP.finditer(text.text):
        requests = int(match["requests__int"][:9])
        why = f"the cache had taken its share when {requests} requests at once were tried out: the rest was too little for them"
        seqs = Fix(_SEQS.title, _SEQS.kind, _SEQS.change % max(1, requests // 4), _SEQS.applicability, _SEQS.caveat)
        judgement = Judgement("limit", "high", ("capacity",), (why,))
        yield Found(match.start(), match.end(), "vllm_kv", "vllm", _backend(text, match), {}, judgement, (seqs, _less(text, match), _EAGER))
    for match in _SWAP.finditer(text.text):
        fields = take(match)
        gib = max(0, (number(fields, "total_bytes") or 0) // 5 >> 30)
        swap = Fix(_SWAP_LESS.title, _SWAP_LESS.kind, _SWAP_LESS.change % gib, _SWAP_LESS.applicability, _SWAP_LESS.caveat)
        why = f"{shown(number(fields, 'requested_bytes'))} of swap space wanted of {shown(number(fields, 'total_bytes'))} of the host"
        judgement = Judgement("host", "high", ("limit",), (why,))
        yield Found(match.start(), match.end(), "vllm_kv", "vllm", "cpu", fields, judgement, (swap, WATCH), bool(match["possibly"]))


def fitting_length(max_seq_len: int, needed_bytes: int, free_bytes: int) -> int:
    """Returns the longest length whose cache fits, in whole blocks, where bytes are proportional to the length."""
    return max_seq_len * free_bytes // needed_bytes // BLOCK * BLOCK if needed_bytes else 0


def _backend(text: Squeezed, match: re.Match[str]) -> str:
    around = text.text[max(match.start() - 3000, 0) : match.end() + 500]
    return next((name for name, words in _BACKENDS if words.search(around)), "cuda")


def _less(text: Squeezed, match: re.Match[str]) -> Fix:
    """The way round: a warm-up that fails needs a smaller fraction, not a larger one."""
    printed = _UTILIZATION.search(text.text, max(match.start() - 5000, 0), match.start())
    value = float(printed["utilization__float"]) if printed else 0.9
    change = f"--gpu-memory-utilization {max(0.1, value - 0.05):.2f}"
    return Fix("Or leave more of the card outside the cache", "flag", change, "vLLM", "fewer tokens in the cache")


def _too_long(found: Found) -> Found:
    fields = found.fields
    length, needed, free = (number(fields, name) for name in ("max_seq_len", "requested_bytes", "free_bytes"))
    tokens, estimate = number(fields, "kv_tokens"), number(fields, "estimated_max_len")
    reasons = []
    fitting = estimate
    if needed and free is not None:
        reasons.append(
            f"one request of {length or 0:,} tokens needs {shown(needed)} of cache, {shown(free)} is left: "
            f"{shown(max(needed - free, 0))} too little"
        )
        if length and fitting is None:
            fitting = fitting_length(length, needed, free)
            reasons.append(f"in proportion {fitting:,} tokens fit (more, where layers have a sliding window)")
    elif length is not None and tokens is not None:
        fitting = tokens // BLOCK * BLOCK
        reasons.append(f"the cache has room for {tokens:,} tokens, the model's length is {length:,}")
    else:
        reasons.append("the cache has no room for one request of the model's full length")
    if estimate is not None:
        reasons.append(f"vLLM itself estimates that {estimate:,} tokens fit")
    fixes: tuple[Fix, ...] = (_MORE, _FP8, _SPLIT)
    if fitting is not None and fitting >= BLOCK:
        change = f"--max-model-len {fitting}"
        fixes = (
            Fix(
                "Limit the length to what fits",
                "flag",
                change,
                "vLLM",
                "requests that are longer are refused; one such request at a time fits",
            ),
            *fixes,
        )
    elif fitting is not None:
        reasons.append("that is less than a block: weights and activations take the whole share")
        fixes = (_MORE, _SMALLER, _SPLIT)
    if needed and free is not None:
        short = max(needed - free, 0) / (1 << 30)
        caveat = (
            f"{short:.2f} GiB more are needed for the full length: each 0.01 is 0.8 GiB on an 80 GiB card; graphs and NCCL need the rest"
        )
        fixes = tuple(Fix(fix.title, fix.kind, fix.change, fix.applicability, caveat) if fix is _MORE else fix for fix in fixes)
    judgement = Judgement("limit", "high", ("capacity",), tuple(reasons))
    return Found(found.start, found.end, found.dialect, found.framework, found.backend, fields, judgement, fixes)


def _no_blocks(text: Squeezed, match: re.Match[str], end: int) -> Found:
    printed = _UTILIZATION.search(text.text, max(match.start() - 3000, 0), match.start())
    share = (
        f"gpu_memory_utilization={printed['utilization__float']}" if printed else "the share of the card given by gpu_memory_utilization"
    )
    reasons = (
        f"weights and the largest activations already fill {share}: nothing is left for the cache",
        "if the weights alone are larger than that share, raising it does not help: more cards or fewer bits do",
    )
    more = Fix("Let vLLM use more of the card", _MORE.kind, _MORE.change, _MORE.applicability, _MORE.caveat)
    fixes = (more, _TOKENS_FEWER, _SMALLER, _SPLIT)
    judgement = Judgement("limit", "medium", ("capacity", "other_process"), reasons)
    return Found(match.start(), end, "vllm_kv", "vllm", _backend(text, match), {}, judgement, fixes)
