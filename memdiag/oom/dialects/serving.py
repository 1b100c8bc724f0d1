"""Engines that serve language models and have few words of their own: Text Generation Inference (TGI), ExLlama, MindIE; FlashInfer.

What they refuse is a number of tokens, not of bytes: the share of the card that was set aside for the cache is too small for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Cause, Fields, Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.units import MIB

FORMATS = ("serving",)
ANCHORS = ("notenoughmemorytohandle", "insufficientvramfor", "insufficientspaceindevice", "warmupfailed,because", "inalignedall")
EXAMPLES = (
    ("serving", "RuntimeError: Not enough memory to handle 8192 prefill tokens. You need to decrease `--max-batch-prefill-tokens`"),
    ("serving", "RuntimeError: Insufficient VRAM for model and cache"),
    ("serving", "Warmup failed, because of model inference out of memory when `maxInputTokenLen` set to 4096."),
    ("serving", "RuntimeError: Failed to allocate memory for batch_prefill_tmp_v with size 402653184 and alignment 16 in AlignedAllocator"),
)

_PREFILL = pattern(
    r"Not enough memory to handle {tokens:int} (?:prefill | (?:max)? (?:batch)? total) tokens"
    r" (?: [.,]? You need to decrease [`'\"]? --[a-z-]{3,40} [`'\"]? )?"
)
_EXLLAMA = pattern(r"Insufficient (?:VRAM for (?:model(?: and cache)?|cache) | space in devices?)")

# MindIE tries a prompt of the greatest length at the start; what it advises is a key of its config.json.
_WARM_UP = pattern(
    r"Warm-?up failed, because of [\w ]{0,40}? (?:inference)? out of memory"
    r" (?:when [`'\"]? (?P<setting>max\w{3,30}) [`'\"]? (?:is)? set to {tokens:int})?"
    r" (?:\. Please try to decrease [`'\"]? (?P<advised>max\w{3,30}) [`'\"]?)?"
)

# FlashInfer cuts temporaries from a buffer of fixed size that the engine gives it.
_WORKSPACE = pattern(
    r"(?: (?:Failed to allocate memory | Buffer overflow when allocating memory) for \w{1,60} with size {requested:bytes}"
    r" and alignment \d{1,6} (?: [,.]? but only {free:bytes} bytes available)? | Out of workspace memory) in AlignedAll(?:ocator|oactor)"
)

_TOKENS = Fix(
    "Prefill fewer tokens at once",
    "flag",
    "--max-batch-prefill-tokens 2048",
    "Text Generation Inference",
    "long prompts are refused: --max-input-tokens must not be larger",
)
_TOTAL = Fix(
    "Limit the tokens of all requests together", "flag", "--max-batch-total-tokens 16384", "Text Generation Inference", "less throughput"
)
_SHARD = Fix("Spread the weights over more cards", "flag", "--num-shard 2", "Text Generation Inference, several cards", "")
_QUANTIZE = Fix("Load the weights in 4 or 8 bits", "flag", "--quantize bitsandbytes-nf4", "Text Generation Inference", "a little accuracy")
_LENGTH = Fix("Use a shorter context", "code", "config.max_seq_len = 8192", "ExLlama; TabbyAPI: max_seq_len", "longer prompts are cut")
_CACHE = Fix(
    "Keep the cache in 4 bits",
    "code",
    "cache = ExLlamaV2Cache_Q4(model, lazy=True)",
    "ExLlamaV2; TabbyAPI: cache_mode: Q4",
    "a little accuracy",
)
_PREFILL_TOKENS = Fix(
    "Prefill fewer tokens at once",
    "flag",
    '"maxPrefillTokens": 4096',
    "MindIE: ScheduleConfig of config.json",
    "long prompts are refused: maxInputTokenLen must not be larger",
)
_WORLD = Fix(
    "Spread the weights over more cards", "flag", '"worldSize": 2', "MindIE: ModelConfig of config.json, with as many npuDeviceIds", ""
)
_BITS = Fix("Use a version of the model with fewer bits for each weight", "flag", "-m model-4.0bpw", "ExLlama", "a little accuracy")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _PREFILL.finditer(text.text):
        reasons = (
            f"a trial at the start found no room for {int(match['tokens__int'][:12]):,} tokens at once beside the weights",
            "the number of tokens is a setting; weights that fill the card leave no room whatever it is",
        )
        yield _found(match.start(), match.end(), "tgi", ("limit", "unknown"), reasons, (_TOKENS, _TOTAL, _QUANTIZE, _SHARD))
    for match in _WARM_UP.finditer(text.text):
        tried = f": {match['setting']} is {int(match['tokens__int'][:12]):,}" if match["setting"] else ""
        why = (f"a trial at the start found no room for a prompt of the greatest length{tried}", "that length is a setting")
        judgement = Judgement("limit", "medium", ("capacity", "unknown"), why)
        yield Found(match.start(), match.end(), "serving", "mindie", "npu", {}, judgement, (_PREFILL_TOKENS, _WORLD))
    for match in _WORKSPACE.finditer(text.text):
        if not text.is_code(match.start()):
            yield _workspace(match.start(), match.end(), take(match))
    for match in _EXLLAMA.finditer(text.text):
        short = ("weights and cache together are larger than what the cards have free; no size is printed",)
        yield _found(match.start(), match.end(), "exllama", ("other_process", "unknown"), short, (_LENGTH, _CACHE, _BITS))


def _workspace(start: int, end: int, fields: Fields) -> Found:
    """Judges a request of FlashInfer's buffer: how full the card is plays no part."""
    requested, free = number(fields, "requested_bytes"), number(fields, "free_bytes")
    left = f", {shown(free)} of it left" if free is not None else ""
    asked = f": {shown(requested)} asked for{left}" if requested else ""
    reasons = (f"FlashInfer's workspace, a buffer of fixed size, is too small for this batch{asked}.", "The card itself may have room.")
    mebibytes = 1024 if requested is None else max(1024, -(-2 * requested // MIB))
    size = mebibytes * MIB
    fixes = (
        Fix(
            "vLLM: make the workspace larger", "env", f"export VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE={size}", "vLLM", "bytes, on each card"
        ),
        Fix("SGLang: make the workspace larger", "env", f"export SGLANG_FLASHINFER_WORKSPACE_SIZE={size}", "SGLang", "bytes, on each card"),
        Fix("Prefill fewer tokens at once", "flag", "--max-num-batched-tokens 4096", "vLLM; SGLang: --chunked-prefill-size 4096", "slower"),
    )
    return Found(start, end, "serving", "flashinfer", "cuda", fields, Judgement("limit", "high", ("workspace_or_comm",), reasons), fixes)


def _found(start: int, end: int, framework: str, others: tuple[Cause, ...], reasons: tuple[str, ...], fixes: tuple[Fix, ...]) -> Found:
    return Found(start, end, "serving", framework, "cuda", {}, Judgement("capacity", "medium", others, reasons), fixes)
