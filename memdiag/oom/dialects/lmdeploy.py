"""LMDeploy: a KV cache that cannot hold one request, and too little memory for its PyTorch engine.

TurboMind gives its KV cache a share of the memory that is free after loading (``cache_max_entry_count``, default 0.8),
and divides it into blocks. If not one of the waiting requests gets all its blocks, it stops (turbomind/engine.cc).
"""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import Texts, phrase_of

FORMATS = ("lmdeploy",)
NAMES = {"lmdeploy": "LMDeploy"}
ANCHORS = ("noenoughblocks", "noenoughgpumemoryforruntime")
WORDS = ("enoughblocks",)
EXAMPLES = (
    (
        "lmdeploy",
        "RuntimeError: [TM][ERROR]  No enough blocks. Assertion fail: /src/turbomind/models/llama/LlamaBatch.cc:400",
    ),
    ("lmdeploy", "engine.cc:300: Check failed: sequences.empty() || !active.empty() No enough blocks [TM]"),
    ("lmdeploy", "lmdeploy/pytorch/engine.py RuntimeError: No enough gpu memory for runtime."),
)
TEXTS: Texts = {
    "why.blocks": {
        "en": "The KV cache of LMDeploy has fewer blocks than one request needs.",
        "zh": "LMDeploy 的 KV 缓存的块数少于一个请求所需。",
    },
    "why.count": {
        "en": "The log names a KV cache of {count:# block|# blocks} of {size} MB.",
        "zh": "日志中的 KV 缓存有 {count} 个块，每块 {size} MB。",
    },
    "why.runtime": {
        "en": "After loading the weights, too little memory is free for a forward pass.",
        "zh": "加载权重之后，空闲内存不足以进行一次前向计算。",
    },
    "more": {"en": "Give the KV cache a larger share of the free memory", "zh": "让 KV 缓存占用空闲内存的较大比例"},
    "more.when": {
        "en": "LMDeploy (default 0.8); TurbomindEngineConfig(cache_max_entry_count=0.9)",
        "zh": "LMDeploy（默认 0.8）；TurbomindEngineConfig(cache_max_entry_count=0.9)",
    },
    "more.caveat": {
        "en": "less memory remains for activations",
        "zh": "留给激活的内存会减少",
    },
    "shorter": {"en": "Limit the length of requests", "zh": "限制请求的长度"},
    "shorter.when": {"en": "LMDeploy", "zh": "LMDeploy"},
    "eight": {"en": "Store the KV cache in 8 bits", "zh": "用 8 位存储 KV 缓存"},
    "eight.when": {"en": "LMDeploy; accuracy may fall", "zh": "LMDeploy；精度可能下降"},
    "tokens": {"en": "Process fewer tokens at a time", "zh": "减少同时处理的 token"},
    "tokens.when": {"en": "LMDeploy", "zh": "LMDeploy"},
}

_BLOCKS = pattern(r"(?:Check failed: sequences\.empty\(\).{0,40})?No enough blocks\.?")
_RUNTIME = pattern(r"No enough gpu memory for runtime\.?")
_OWN = re.compile(r"turbomind|lmdeploy|\[tm\]|llamabatch|sequences\.empty", re.IGNORECASE)
_COUNT = pattern(r"max_block_count = (?P<count>\d{1,9})")
_SIZE = pattern(r"block_size = (?P<size>\d{1,7}(?:\.\d{1,3})?) MB")
_BEFORE, _AFTER = 300, 200
_START = 20_000  # the log of the start, before the message

_MORE = LazyFix("more", "flag", "--cache-max-entry-count 0.9", caveat="more.caveat", texts=TEXTS)
_SHORTER = LazyFix("shorter", "flag", "--session-len 4096", texts=TEXTS)
_EIGHT = LazyFix("eight", "flag", "--quant-policy 8", texts=TEXTS)
_TOKENS = LazyFix("tokens", "flag", "--max-prefill-token-num 4096 --max-batch-size 32", texts=TEXTS)
_SPREAD = LazyFix("oom_shared.spread", "flag", "--tp 2", {"program": "LMDeploy"})


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _BLOCKS.finditer(text.text):
        around = text.text[max(match.start() - _BEFORE, 0) : match.end() + _AFTER]
        if text.is_code(match.start()) or not _OWN.search(around):
            continue
        reasons = [phrase_of(TEXTS, "why.blocks")]
        start = max(match.start() - _START, 0)
        counts, sizes = ([*form.finditer(text.text, start, match.start())][-1:] for form in (_COUNT, _SIZE))
        if counts and sizes:
            reasons.append(phrase_of(TEXTS, "why.count", count=int(counts[0]["count"]), size=sizes[0]["size"]))
        judgement = Judgement("limit", "high", ("capacity",), tuple(reasons))
        yield _found(match, judgement, (_MORE, _SHORTER, _EIGHT, _SPREAD))
    for match in _RUNTIME.finditer(text.text):
        if not text.is_code(match.start()):
            judgement = Judgement("capacity", "medium", ("other_process",), (phrase_of(TEXTS, "why.runtime"),))
            yield _found(match, judgement, (_TOKENS, _SPREAD))


def _found(match: re.Match[str], judgement: Judgement, fixes: tuple[LazyFix, ...]) -> Found:
    return Found(match.start(), match.end(), "lmdeploy", "lmdeploy", "cuda", {}, judgement, fixes)
