"""SGLang: its memory pool at start-up and while serving.

--mem-fraction-static is the fraction of the device for weights and KV pool together; the rest is for activations and
CUDA graphs. So the flag has to increase if the pool is too small, and to decrease if memory outside the pool runs out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import fraction_up

ROOM_ABOVE_WEIGHTS = 0.02  # of the free memory, for a small KV cache
FORMATS = ("sglang",)
NAMES = {"sglang": "SGLang"}
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
    (
        "sglang",
        (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.8. "
            "Raise --mem-fraction-static above 0.842 (minimum viable = 1 - available/pre = 0.8412)."
        ),
    ),
    (
        "sglang",
        (
            "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\n"
            "Available tokens: 4096"
        ),
    ),
)

_POOL = pattern(
    r"Not enough memory [.;:,]? (?:Please)? try (?:to)? (?P<way>increas|decreas|reduc)(?:e|ing) [`']?"
    r"(?:--)?mem[-_]fraction[-_]static"
)
# SGLang 0.5.23 and newer
_WEIGHTS = pattern(
    r"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static= (?P<now>[01]?\.\d{1,6})"
    r" (?:\.? Raise --mem-fraction-static above (?P<least>[01]?\.\d{1,6}))?"
)
_BATCH = pattern(r"(?:(?P<phase>Prefill|Decode|Extend) )? out of memory\.? Try to lower (?:your)? batch size")
_TOKENS = pattern(
    r"Try to allocate (?P<wanted>\d{1,12}) tokens\.? (?:.{0,40}?Available (?:full)? tokens: (?P<left>\d{1,12}))?"
)
_UNBALANCED = pattern(r"The memory capacity is unbalanced\.")
_GRAPH = pattern(r"Capture CUDA graph failed: (?!.{0,80}Tried to allocate) .{0,80}? out of memory")
_RETRACT = pattern(r"(?:KV cache pool is full\. Retract requests | (?:Decode|Prefill) out of memory happened\.)")
_PROFILED = pattern(
    r"max_total_(?:num_)? tokens = {wanted:int} is larger than the profiled value -(?P<missing>\d{1,12})"
)
_HOST = pattern(r"Not enough host memory available\. Requesting {requested:size} but only have {free:size} free")
_FRACTION = pattern(r"mem_fraction_static['\"]?[=:] {value:float}")
_HIP = re.compile(r"rocm|hip_", re.IGNORECASE)

_SPLIT = LazyFix("oom_shared.spread", "flag", "--tp-size 2", {"program": "SGLang"})
_BITS = LazyFix("oom_shared.bits", "flag", "--quantization fp8", when="oom_sglang.bits.when")
_FEWER = LazyFix("oom_shared.requests", "flag", "--max-running-requests 32", {"program": "SGLang"})
_CHUNK = LazyFix("oom_shared.prefill", "flag", "--chunked-prefill-size 2048", {"program": "SGLang"})
_GRAPHS = LazyFix("oom_shared.graphs", "flag", "--cuda-graph-max-bs 16", {"program": "SGLang"})
_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi", when="oom_sglang.who.when", caveat="oom_sglang.who.caveat")
_HICACHE = LazyFix("oom_sglang.hicache", "flag", "--hicache-ratio 1.2  # or --hicache-size in GB")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _POOL.finditer(text.text):
        up = match["way"].lower() == "increas"
        reasons = (phrase("oom_sglang.why.weights"), phrase("oom_sglang.why.limits"))
        judgement = Judgement("limit", "medium", ("capacity", "other_process"), reasons)
        yield _found(text, match, judgement, (_static(text, match, up=up), _SPLIT, _WHO))
    for match in _WEIGHTS.finditer(text.text):
        least = float(match["least"] or match["now"])
        line = f"--mem-fraction-static {fraction_up(least + ROOM_ABOVE_WEIGHTS)}"
        judgement = Judgement("limit", "high", ("capacity",), (phrase("oom_sglang.why.weights"),))
        yield _found(text, match, judgement, (LazyFix("oom_sglang.up", "flag", line), _SPLIT, _BITS))
    for match in _PROFILED.finditer(text.text):
        why = phrase("oom_sglang.why.negative", tokens=int(match["missing"]))
        judgement = Judgement("capacity", "high", ("limit", "other_process"), (why,))
        # A larger fraction gains a few percent; the weights need more devices.
        yield _found(text, match, judgement, (_SPLIT, _BITS, _static(text, match, up=True)))
    for match in _BATCH.finditer(text.text):
        tokens = _TOKENS.search(text.text, match.end(), match.end() + 200)
        why = phrase("oom_sglang.why.tokens")
        if tokens and tokens["left"]:
            why = phrase("oom_sglang.why.tokens.sum", wanted=int(tokens["wanted"]), left=int(tokens["left"]))
        fixes = (_FEWER, _CHUNK, _static(text, match, up=True))
        found = _found(text, match, Judgement("limit", "high", ("capacity",), (why,)), fixes)
        yield replace(found, end=tokens.end()) if tokens else found
    for match in _UNBALANCED.finditer(text.text):
        judgement = Judgement("other_process", "high", ("unknown",), (phrase("oom_sglang.why.unbalanced"),))
        yield _found(text, match, judgement, (_WHO,))
    for match in _GRAPH.finditer(text.text):
        judgement = Judgement("limit", "high", ("workspace_or_comm", "capacity"), (phrase("oom_sglang.why.graphs"),))
        yield _found(text, match, judgement, (_static(text, match, up=False), _GRAPHS))
    for match in _HOST.finditer(text.text):
        fields = take(match)
        sizes = {name: shown(number(fields, f"{name}_bytes")) for name in ("requested", "free")}
        judgement = Judgement("host", "high", ("limit",), (phrase("oom_sglang.why.host", **sizes),))
        yield replace(_found(text, match, judgement, (_HICACHE, WATCH)), fields=fields, backend="cpu")
    for match in _RETRACT.finditer(text.text):
        judgement = Judgement("limit", "medium", ("capacity",), (phrase("oom_sglang.why.retract"),))
        found = _found(text, match, judgement, (_FEWER, _static(text, match, up=True)))
        yield replace(found, is_warning=True)


def _static(text: Squeezed, match: re.Match[str], *, up: bool) -> LazyFix:
    printed = _FRACTION.search(text.text, max(match.start() - 4000, 0), match.end() + 300)
    before = float(printed["value__float"]) if printed else 0.85
    value = min(0.95, before + 0.04) if up else max(0.3, before - 0.08)
    line = f"--mem-fraction-static {value:.2f}"
    if up:
        return LazyFix("oom_sglang.up", "flag", line, caveat="" if printed else "oom_sglang.up.unknown.caveat")
    return LazyFix(
        "oom_sglang.down",
        "flag",
        line,
        caveat="oom_shared.fewer-tokens" if printed else "oom_sglang.down.unknown.caveat",
    )


def _found(text: Squeezed, match: re.Match[str], judgement: Judgement, fixes: tuple[LazyFix, ...]) -> Found:
    is_hip = _HIP.search(text.text, max(match.start() - 2000, 0), match.end())
    device = "hip" if is_hip else "cuda"
    return Found(match.start(), match.end(), "sglang", "sglang", device, {}, judgement, fixes)
