"""Language model engines with few own messages: Text Generation Inference (TGI), ExLlama, MindIE; FlashInfer.

They refuse a number of tokens instead of bytes: the memory reserved for the cache is too small for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase
from memdiag.units import MIB

FORMATS = ("serving",)
NAMES = {"tgi": "TGI", "exllama": "ExLlama", "mindie": "MindIE", "flashinfer": "FlashInfer"}
ANCHORS = (
    "notenoughmemorytohandle",
    "insufficientvramfor",
    "insufficientspaceindevice",
    "warmupfailed,because",
    "inalignedall",
)
WORDS = ("vram",)
EXAMPLES = (
    (
        "serving",
        (
            "RuntimeError: Not enough memory to handle 8192 prefill tokens. "
            "You need to decrease `--max-batch-prefill-tokens`"
        ),
    ),
    ("serving", "RuntimeError: Insufficient VRAM for model and cache"),
    ("serving", "Warmup failed, because of model inference out of memory when `maxInputTokenLen` set to 4096."),
    (
        "serving",
        (
            "RuntimeError: Failed to allocate memory for batch_prefill_tmp_v with size 402653184 and alignment 16 in "
            "AlignedAllocator"
        ),
    ),
)

_PREFILL = pattern(
    r"Not enough memory to handle {tokens:int} (?:prefill | (?:max)? (?:batch)? total) tokens"
    r" (?: [.,]? You need to decrease [`'\"]? --[a-z-]{3,40} [`'\"]? )?"
)
_EXLLAMA = pattern(r"Insufficient (?:VRAM for (?:model(?: and cache)?|cache) | space in devices?)")

# MindIE tries a prompt of the maximum length at the start; its advice is a key of its config.json.
_WARM_UP = pattern(
    r"Warm-?up failed, because of [\w ]{0,40}? (?:inference)? out of memory"
    r" (?:when [`'\"]? (?P<setting>max\w{3,30}) [`'\"]? (?:is)? set to {tokens:int})?"
    r" (?:\. Please try to decrease [`'\"]? (?P<advised>max\w{3,30}) [`'\"]?)?"
)

# FlashInfer allocates temporaries from a fixed-size buffer that the engine provides.
_WORKSPACE = pattern(
    r"(?: (?:Failed to allocate memory | Buffer overflow when allocating memory) for \w{1,60} with size"
    r" {requested:bytes}"
    r" and alignment \d{1,6} (?: [,.]? but only {free:bytes} bytes available)? "
    r"| Out of workspace memory) in AlignedAll(?:ocator|oactor)"
)

_TOKENS = LazyFix(
    "oom_shared.prefill",
    "flag",
    "--max-batch-prefill-tokens 2048",
    {"program": "Text Generation Inference"},
    caveat="oom_engines.tgi.caveat",
)
_TOTAL = LazyFix("oom_engines.total", "flag", "--max-batch-total-tokens 16384", caveat="oom_shared.requests.caveat")
_SHARD = LazyFix("oom_shared.spread", "flag", "--num-shard 2", {"program": "Text Generation Inference"})
_QUANTIZE = LazyFix("oom_shared.bits", "flag", "--quantize bitsandbytes-nf4", {"program": "Text Generation Inference"})
_LENGTH = LazyFix(
    "oom_shared.context", "code", "config.max_seq_len = 8192", {"program": "ExLlama; TabbyAPI: max_seq_len"}
)
_CACHE = LazyFix(
    "oom_engines.cache4", "code", "cache = ExLlamaV2Cache_Q4(model, lazy=True)", caveat="oom_shared.accuracy"
)
_PREFILL_TOKENS = LazyFix(
    "oom_shared.prefill",
    "flag",
    '"maxPrefillTokens": 4096',
    when="oom_engines.mindie.when",
    caveat="oom_engines.mindie.caveat",
)
_WORLD = LazyFix("oom_shared.spread", "flag", '"worldSize": 2', when="oom_engines.mindie.world")
_BITS = LazyFix("oom_engines.bpw", "flag", "-m model-4.0bpw", caveat="oom_shared.accuracy")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _PREFILL.finditer(text.text):
        reasons = (
            phrase("oom_engines.why.prefill", tokens=int(match["tokens__int"][:12])),
            phrase("oom_engines.why.prefill.weights"),
        )
        yield _found(
            match.start(), match.end(), "tgi", ("limit", "unknown"), reasons, (_TOKENS, _TOTAL, _QUANTIZE, _SHARD)
        )
    for match in _WARM_UP.finditer(text.text):
        why = phrase("oom_engines.why.warm-up")
        if match["setting"]:
            why = phrase(
                "oom_engines.why.warm-up.tokens", setting=match["setting"], tokens=int(match["tokens__int"][:12])
            )
        judgement = Judgement("limit", "medium", ("capacity", "unknown"), (why,))
        yield Found(match.start(), match.end(), "serving", "mindie", "npu", {}, judgement, (_PREFILL_TOKENS, _WORLD))
    for match in _WORKSPACE.finditer(text.text):
        if not text.is_code(match.start()):
            yield _workspace(match.start(), match.end(), take(match))
    for match in _EXLLAMA.finditer(text.text):
        short = (phrase("oom_engines.why.exllama"),)
        yield _found(
            match.start(), match.end(), "exllama", ("other_process", "unknown"), short, (_LENGTH, _CACHE, _BITS)
        )


def _workspace(start: int, end: int, fields: Fields) -> Found:
    """Judges a request to FlashInfer's buffer: the free memory of the device is irrelevant."""
    requested, free = number(fields, "requested_bytes"), number(fields, "free_bytes")
    why = phrase("oom_engines.why.flashinfer")
    if requested and free is not None:
        why = phrase("oom_engines.why.flashinfer.left", free=shown(free), size=shown(requested))
    elif requested:
        why = phrase("oom_engines.why.flashinfer.size", size=shown(requested))
    mebibytes = 1024 if requested is None else max(1024, -(-2 * requested // MIB))
    size = mebibytes * MIB
    fixes = (
        LazyFix(
            "oom_engines.workspace", "env", f"export VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE={size}", {"program": "vLLM"}
        ),
        LazyFix(
            "oom_engines.workspace", "env", f"export SGLANG_FLASHINFER_WORKSPACE_SIZE={size}", {"program": "SGLang"}
        ),
        LazyFix(
            "oom_shared.prefill",
            "flag",
            "--max-num-batched-tokens 4096",
            {"program": "vLLM; SGLang: --chunked-prefill-size 4096"},
        ),
    )
    return Found(
        start,
        end,
        "serving",
        "flashinfer",
        "cuda",
        fields,
        Judgement("limit", "high", ("workspace_or_comm",), (why,)),
        fixes,
    )


def _found(
    start: int,
    end: int,
    framework: str,
    others: tuple[Cause, ...],
    reasons: tuple[str, ...],
    fixes: tuple[LazyFix, ...],
) -> Found:
    return Found(start, end, "serving", framework, "cuda", {}, Judgement("capacity", "medium", others, reasons), fixes)
