"""vLLM's KV cache at start-up: no room for one request of the maximum length, or for any block; and its warm-up.

The cache gets the part of gpu_memory_utilization that weights and activations leave. The bytes of one request are
proportional to its length (except for layers with a sliding window or a state), so the message determines the length
that fits. Wordings: "is larger than the maximum number of tokens" (V0), "KV cache is needed" (V1, at first with an
unbalanced bracket), with an estimate since 0.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import gather, number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

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
            "ValueError: To serve at least one request with the models's max seq len (131072), "
            "(16.00 GiB KV cache is needed, "
            "which is larger than "
            "the available KV cache memory (7.50 GiB). Based on the available memory, "
            "the estimated maximum model length is 61440."
        ),
    ),
    (
        "vllm_kv",
        (
            "The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV "
            "cache (8192). "
            "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
        ),
    ),
    (
        "vllm_kv",
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine."
        ),
    ),
)

BLOCK = 16  # tokens in a block of the cache, unless --block-size is set

_SERVE = pattern(
    r"To serve at least one request with (?:the)? model'?s?'?s? max(?:imum)?"
    r" (?:seq(?:uence)? len(?:gth)?|model len(?:gth)?)"
    r" (?: \(?{max_seq_len:int}\)? )?"
)
_SERVE_CLAUSES = (
    pattern(r"{requested:size} (?:of)? KV cache (?:memory)? is needed"),
    pattern(r"(?:larger than|exceeds) the available KV cache memory \(?{free:size}"),
    pattern(r"estimated maximum model length is:? {estimated_max_len:int}"),
)
_HINT = pattern(
    r"Try (?:increasing|decreasing) [`']?\w{3,30}?[`']? (?:or (?:increasing|decreasing) [`']?\w{3,30}?[`']? )? when "
    r"initializing the engine"
)
_TOKENS = pattern(
    r"max(?:imum)? (?:seq len|model len(?:gth)?) \(?{max_seq_len:int}\)? is larger than the maximum number of "
    r"tokens that can"
    r" be stored in (?:the)? KV cache"
    r" (?:\(?{kv_tokens:int}\)?)?"
)
_NOTHING = pattern(r"No available memory for the cache blocks")
_FIT = pattern(r"Cannot auto-fit max_?model_?len")
_WARM_UP = pattern(
    r"(?:CUDA|HIP|XPU|NPU)? out of memory occurred when warming up (?P<what>sampler|pooler|[a-z ]{3,20}?) with"
    r" {requests:int}"
    r" dummy requests"
    r" (?: \.? Please try lowering [`']?max_num_seqs[`']? or [`']?gpu_memory_utilization[`']?"
    r" (?:when initializing the engine)? )?"
)
_SWAP = pattern(
    r"(?P<possibly>Possibly)? Too large swap space\. {requested:size} out of the {total:size} total CPU memory "
    r"is allocated"
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

_MORE = LazyFix("oom_vllm.more", "flag", "--gpu-memory-utilization 0.95")
_FP8 = LazyFix("oom_shared.cache8", "flag", "--kv-cache-dtype fp8", when="oom_vllm.cache8.when")
_SPLIT = LazyFix("oom_shared.spread", "flag", "--tensor-parallel-size 2", {"program": "vLLM"})
_EAGER = LazyFix("oom_shared.eager", "flag", "--enforce-eager", {"program": "vLLM"})
_SEQS = LazyFix("oom_vllm.seqs", "flag", "--max-num-seqs %d")
_TOKENS_FEWER = LazyFix("oom_vllm.tokens", "flag", "--max-num-batched-tokens 2048")
_SMALLER = LazyFix("oom_shared.bits", "flag", "--quantization fp8", when="oom_vllm.bits.when")
_SWAP_LESS = LazyFix("oom_vllm.swap", "flag", "--swap-space %d")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    heads = sorted(
        (match for head in (_SERVE, _TOKENS) for match in head.finditer(text.text)), key=lambda match: match.start()
    )
    for match, following in zip(heads, [*heads, None][1:], strict=True):
        stop = min(following.start() if following else len(text.text), match.end() + 700)
        more, end = gather(text, match.end(), stop, _SERVE_CLAUSES if match.re is _SERVE else ())
        hint = _HINT.search(text.text, end, min(stop, end + 200))
        yield _too_long(
            Found(
                match.start(), hint.end() if hint else end, "vllm_kv", "vllm", _backend(text, match), take(match) | more
            )
        )
    for match in _NOTHING.finditer(text.text):
        hint = _HINT.search(text.text, match.end(), match.end() + 100)
        yield _no_blocks(text, match, hint.end() if hint else match.end())
    for match in _FIT.finditer(text.text):
        yield _no_blocks(text, match, match.end())
    for match in _WARM_UP.finditer(text.text):
        requests = int(match["requests__int"][:9])
        why = phrase("oom_vllm.why.warm-up", requests=requests)
        seqs = replace(_SEQS, change=_SEQS.change % max(1, requests // 4))
        judgement = Judgement("limit", "high", ("capacity",), (why,))
        yield Found(
            match.start(),
            match.end(),
            "vllm_kv",
            "vllm",
            _backend(text, match),
            {},
            judgement,
            (seqs, _less(text, match), _EAGER),
        )
    for match in _SWAP.finditer(text.text):
        fields = take(match)
        gib = max(0, (number(fields, "total_bytes") or 0) // 5 >> 30)
        swap = replace(_SWAP_LESS, change=_SWAP_LESS.change % gib)
        why = phrase(
            "oom_vllm.why.swap",
            requested=shown(number(fields, "requested_bytes")),
            total=shown(number(fields, "total_bytes")),
        )
        judgement = Judgement("host", "high", ("limit",), (why,))
        yield Found(
            match.start(),
            match.end(),
            "vllm_kv",
            "vllm",
            "cpu",
            fields,
            judgement,
            (swap, WATCH),
            bool(match["possibly"]),
        )


def fitting_length(max_seq_len: int, needed_bytes: int, free_bytes: int) -> int:
    """Returns the longest length whose cache fits, in whole blocks, if bytes are proportional to the length."""
    return max_seq_len * free_bytes // needed_bytes // BLOCK * BLOCK if needed_bytes else 0


def _backend(text: Squeezed, match: re.Match[str]) -> str:
    around = text.text[max(match.start() - 3000, 0) : match.end() + 500]
    return next((name for name, words in _BACKENDS if words.search(around)), "cuda")


def _less(text: Squeezed, match: re.Match[str]) -> LazyFix:
    """Returns the opposite remedy: a warm-up that fails needs a smaller fraction, not a larger one."""
    printed = _UTILIZATION.search(text.text, max(match.start() - 5000, 0), match.start())
    value = float(printed["utilization__float"]) if printed else 0.9
    change = f"--gpu-memory-utilization {max(0.1, value - 0.05):.2f}"
    return LazyFix("oom_vllm.less", "flag", change, caveat="oom_shared.fewer-tokens")


def _too_long(found: Found) -> Found:
    fields = found.fields
    length, needed, free = (number(fields, name) for name in ("max_seq_len", "requested_bytes", "free_bytes"))
    tokens, estimate = number(fields, "kv_tokens"), number(fields, "estimated_max_len")
    reasons = []
    fitting = estimate
    if needed and free is not None:
        reasons.append(
            phrase(
                "oom_vllm.why.needs",
                length=length or 0,
                needed=shown(needed),
                free=shown(free),
                short=shown(max(needed - free, 0)),
            )
        )
        if length and fitting is None:
            fitting = fitting_length(length, needed, free)
            reasons.append(phrase("oom_vllm.why.fits", tokens=fitting))
    elif length is not None and tokens is not None:
        fitting = tokens // BLOCK * BLOCK
        reasons.append(phrase("oom_vllm.why.length", tokens=tokens, length=length))
    else:
        reasons.append(phrase("oom_vllm.why.none"))
    if estimate is not None:
        reasons.append(phrase("oom_vllm.why.estimate", tokens=estimate))
    fixes: tuple[LazyFix, ...] = (_MORE, _FP8, _SPLIT)
    if fitting is not None and fitting >= BLOCK:
        change = f"--max-model-len {fitting}"
        fixes = (
            LazyFix("oom_vllm.length", "flag", change),
            *fixes,
        )
    elif fitting is not None:
        reasons.append(phrase("oom_vllm.why.block"))
        fixes = (_MORE, _SMALLER, _SPLIT)
    if needed and free is not None:
        short = max(needed - free, 0) / (1 << 30)
        more = replace(_MORE, values={"gib": f"{short:.2f}"}, caveat="oom_vllm.more.short.caveat")
        fixes = tuple(more if fix is _MORE else fix for fix in fixes)
    judgement = Judgement("limit", "high", ("capacity",), tuple(reasons))
    return Found(found.start, found.end, found.dialect, found.framework, found.backend, fields, judgement, fixes)


def _no_blocks(text: Squeezed, match: re.Match[str], end: int) -> Found:
    printed = _UTILIZATION.search(text.text, max(match.start() - 3000, 0), match.start())
    share = phrase("oom_vllm.why.share")
    if printed:
        share = phrase("oom_vllm.why.share.value", share=printed["utilization__float"])
    reasons = (
        share,
        phrase("oom_vllm.why.weights"),
    )
    fixes = (_MORE, _TOKENS_FEWER, _SMALLER, _SPLIT)
    judgement = Judgement("limit", "medium", ("capacity", "other_process"), reasons)
    return Found(match.start(), end, "vllm_kv", "vllm", _backend(text, match), {}, judgement, fixes)
