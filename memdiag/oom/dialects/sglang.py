"""SGLang: its memory pool at start-up and while serving.

--mem-fraction-static is the share of the card for weights and KV pool together; the rest is for activations and CUDA graphs. So the same
flag has to go up when the pool has no room, and down when something else runs out beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.findings import Fix
from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Cause, Confidence, Fields, Found, Judgement
from memdiag.oom.squeezed import Squeezed, pattern, take

FORMATS = ("sglang",)
ANCHORS = (
    "mem-fraction-static",
    "mem_fraction_static",
    "outofmemory.trytoloweryourbatchsize",
    "outofmemory.trytolower",
    "thememorycapacityisunbalanced",
    "capturecudagraphfailed",
    "kvcachepoolisfull",
    "notenoughhostmemory",
    "outofmemoryhappened",
    "theprofiledvalue",
)
EXAMPLES = (
    ("sglang", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    ("sglang", "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\nAvailable tokens: 4096"),
)

_POOL = pattern(
    r"Not enough memory [.;:,]? (?:Please)? try (?:to)? (?P<way>increas|decreas|reduc)(?:e|ing) [`']?(?:--)?mem[-_]fraction[-_]static"
)
_BATCH = pattern(r"(?:(?P<phase>Prefill|Decode|Extend) )? out of memory\.? Try to lower (?:your)? batch size")
_TOKENS = pattern(r"Try to allocate (?P<wanted>\d{1,12}) tokens\.? (?:.{0,40}?Available (?:full)? tokens: (?P<left>\d{1,12}))?")
_UNBALANCED = pattern(r"The memory capacity is unbalanced\.")
_GRAPH = pattern(r"Capture CUDA graph failed: (?!.{0,80}Tried to allocate) .{0,80}? out of memory")
_RETRACT = pattern(r"(?:KV cache pool is full\. Retract requests | (?:Decode|Prefill) out of memory happened\.)")
_PROFILED = pattern(r"max_total_(?:num_)? tokens = {wanted:int} is larger than the profiled value -(?P<missing>\d{1,12})")
_HOST = pattern(r"Not enough host memory available\. Requesting {requested:size} but only have {free:size} free")
_FRACTION = pattern(r"mem_fraction_static['\"]?[=:] {value:float}")
_HIP = re.compile(r"rocm|hip_", re.IGNORECASE)

_SPLIT = Fix("Spread the weights over more cards", "flag", "--tp-size 2", "SGLang, several cards", "they talk to each other in every layer")
_BITS = Fix("Load the weights in fewer bits", "flag", "--quantization fp8", "SGLang; or a checkpoint in 4 or 8 bits", "a little accuracy")
_FEWER = Fix("Run fewer requests at once", "flag", "--max-running-requests 32", "SGLang", "less throughput")
_CHUNK = Fix("Prefill in smaller pieces", "flag", "--chunked-prefill-size 2048", "SGLang", "slower prefill of long prompts")
_GRAPHS = Fix("Capture graphs for smaller batches only", "flag", "--cuda-graph-max-bs 16", "SGLang", "larger batches run without graphs")
_WHO = Fix(
    "See who else holds memory on the cards",
    "flag",
    "nvidia-smi",
    "before the server starts",
    "an earlier server whose workers live on is the usual one",
)
_HICACHE = Fix(
    "Make the cache in host memory smaller",
    "flag",
    "--hicache-ratio 1.2  # or --hicache-size in GB",
    "SGLang with --enable-hierarchical-cache",
    "fewer prefixes are kept",
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _POOL.finditer(text.text):
        up = match["way"].lower() == "increas"
        reasons = (
            "weights fill the share given by --mem-fraction-static: nothing is left in it for the KV pool",
            "what the message suggests is right up to a point: activations and CUDA graphs need what is left of the card",
        )
        yield _found(
            text,
            match,
            match.end(),
            {},
            "limit",
            ("capacity", "other_process"),
            reasons,
            (_static(text, match, up=up), _SPLIT, _WHO),
            "medium",
        )
    for match in _PROFILED.finditer(text.text):
        why = (
            f"after the weights the share of --mem-fraction-static is short of {int(match['missing']):,} tokens of KV cache: "
            "the weights alone are larger than that share"
        )
        # More of the card wins a few percent; the weights need more cards.
        more = _static(text, match, up=True)
        yield _found(text, match, match.end(), {}, "capacity", ("limit", "other_process"), (why,), (_SPLIT, _BITS, more), "high")
    for match in _BATCH.finditer(text.text):
        tokens = _TOKENS.search(text.text, match.end(), match.end() + 200)
        sums = f": {int(tokens['wanted']):,} tokens asked for, {int(tokens['left']):,} free" if tokens and tokens["left"] else ""
        why = f"the KV pool has too few tokens left{sums}; the card's memory is not the question"
        fixes: tuple[Fix, ...] = (_FEWER, _CHUNK, _static(text, match, up=True))
        yield _found(text, match, tokens.end() if tokens else match.end(), {}, "limit", ("capacity",), (why,), fixes, "high")
    for match in _UNBALANCED.finditer(text.text):
        why = "the cards of one server have different amounts free: other processes hold memory on some of them"
        yield _found(text, match, match.end(), {}, "other_process", ("unknown",), (why,), (_WHO,), "high")
    for match in _GRAPH.finditer(text.text):
        why = "weights and KV pool were in place, CUDA graphs found no room beside them"
        fixes = (_static(text, match, up=False), _GRAPHS)
        yield _found(text, match, match.end(), {}, "limit", ("workspace_or_comm", "capacity"), (why,), fixes, "high")
    for match in _HOST.finditer(text.text):
        fields = take(match)
        why = (
            f"{shown(number(fields, 'requested_bytes'))} of host memory wanted for the hierarchical cache, "
            f"{shown(number(fields, 'free_bytes'))} free"
        )
        yield _found(text, match, match.end(), fields, "host", ("limit",), (why,), (_HICACHE, WATCH), "high", "cpu")
    for match in _RETRACT.finditer(text.text):
        why = "requests are put back into the queue until the KV pool has room: slower, no failure"
        yield _found(
            text, match, match.end(), {}, "limit", ("capacity",), (why,), (_FEWER, _static(text, match, up=True)), "medium", warning=True
        )


def _static(text: Squeezed, match: re.Match[str], *, up: bool) -> Fix:
    printed = _FRACTION.search(text.text, max(match.start() - 4000, 0), match.end() + 300)
    before = float(printed["value__float"]) if printed else 0.85
    value = min(0.95, before + 0.04) if up else max(0.3, before - 0.08)
    title = "Give weights and KV pool a larger share of the card" if up else "Leave more of the card outside weights and KV pool"
    caveat = "too much, and activations or CUDA graphs run out instead" if up else "fewer tokens in the pool"
    known = "" if printed else "; the value before is not printed: start from yours, by steps of 0.02"
    return Fix(title, "flag", f"--mem-fraction-static {value:.2f}", "SGLang", caveat + known)


def _found(
    text: Squeezed,
    match: re.Match[str],
    end: int,
    fields: Fields,
    verdict: Cause,
    others: tuple[Cause, ...],
    reasons: tuple[str, ...],
    fixes: tuple[Fix, ...],
    level: Confidence,
    backend: str = "",
    *,
    warning: bool = False,
) -> Found:
    device = backend or ("hip" if _HIP.search(text.text, max(match.start() - 2000, 0), end) else "cuda")
    return Found(match.start(), end, "sglang", "sglang", device, fields, Judgement(verdict, level, others, reasons), fixes, warning)
