"""Ollama's own checks of host memory before a model is loaded, and runners that disappeared.

Messages of llama.cpp inside a runner belong to the dialect ggml. The runner is a separate process: "signal: killed"
comes from the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.dialects.host_memory import WATCH
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, size_of, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Judgement
from memdiag.text import phrase

FORMATS = ("ollama_host",)
ANCHORS = ("modelrequiresmore", "requesttoolargeforsystem", "llamarunnerprocess", "memorylayoutcannotbeallocated")
EXAMPLES = (("ollama_host", "Error: model requires more system memory (12.5 GiB) than is available (9.1 GiB)"),)

_MODEL = pattern(
    r"model requires more (?P<what>system|gpu|video|v?ram)? memory (?: \(?{requested:size}\)? )? than is (?:currently)?"
    r" available (?: \(?{free:size}\)? )?"
)
_LOG = pattern(
    r"model request too large for system[\"']? (?:requested=[\"']?{requested:size}[\"']?)?"
    r" (?:available=[\"']?(?P<available>\d{1,20}|[\d.]{1,20}[KMGT]i?B)[\"']?)?"
    r" (?:total=[\"']?{total:size}[\"']?)? (?:free=[\"']?{free:size}[\"']?)?"
    r" (?:swap=[\"']?[\d.]{1,20}[KMGT]?i?B[\"']?)?"
)
_RUNNER = pattern(
    r"llama runner process (?:has terminated|no longer running): (?:-?\d{1,4})? signal: (?:killed|bus error)"
)
_LAYOUT = pattern(r"memory layout cannot be allocated (?:with num_gpu = \d{1,6})?")

_QUANTS = LazyFix("oom_ollama.quant", "flag", "ollama run llama3.1:8b-instruct-q4_K_M")
_PARALLEL = LazyFix("oom_ollama.parallel", "env", "OLLAMA_NUM_PARALLEL=1 OLLAMA_MAX_LOADED_MODELS=1 ollama serve")
_CONTEXT = LazyFix(
    "oom_shared.context",
    "env",
    "OLLAMA_CONTEXT_LENGTH=4096 ollama serve",
    {"program": "Ollama 0.5.13+; Ollama < 0.5.13: num_ctx"},
)
_CACHE = LazyFix(
    "oom_shared.cache8",
    "env",
    "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve",
    {"program": "Ollama 0.5+"},
)
_LAYERS = LazyFix("oom_ollama.layers", "flag", "/set parameter num_gpu -1")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _LOG.finditer(text.text):
        fields = take(match)
        if "free_bytes" not in fields and match["available"]:
            fields["free_bytes"] = size_of(match["available"])
        yield _memory(match.start(), match.end(), fields, "system")
    for match in _MODEL.finditer(text.text):
        yield _memory(match.start(), match.end(), take(match), (match["what"] or "system").lower())
    for match in _RUNNER.finditer(text.text):
        judgement = Judgement("host", "medium", ("unknown",), (phrase("oom_ollama.why.runner"),))
        yield Found(
            match.start(),
            match.end(),
            "ollama_host",
            "ollama",
            "cpu",
            {},
            judgement,
            (_QUANTS, _PARALLEL, _CONTEXT, WATCH),
        )
    for match in _LAYOUT.finditer(text.text):
        judgement = Judgement("limit", "medium", ("capacity",), (phrase("oom_ollama.why.layers"),))
        yield Found(
            match.start(), match.end(), "ollama_host", "ollama", "cuda", {}, judgement, (_LAYERS, _QUANTS, _CONTEXT)
        )


def _memory(start: int, end: int, fields: Fields, what: str) -> Found:
    requested, free = number(fields, "requested_bytes"), number(fields, "free_bytes")
    sums = phrase("oom_ollama.why.large")
    if requested is not None and free is not None:
        amounts = {"needed": shown(requested), "available": shown(free)}
        sums = phrase("oom_ollama.why.needs", **amounts)
        if requested > free:
            sums = phrase("oom_ollama.why.needs.short", **amounts, short=shown(requested - free))
    on_card = what in {"gpu", "video", "vram", "ram"} and what != "ram"
    verdict: Cause = "capacity" if on_card else "host"
    others: tuple[Cause, ...] = ("limit",) if on_card else ("capacity",)
    reasons = (sums, phrase("oom_ollama.why.device") if on_card else phrase("oom_ollama.why.host"))
    judgement = Judgement(verdict, "high", others, reasons)
    return Found(
        start,
        end,
        "ollama_host",
        "ollama",
        "cuda" if on_card else "cpu",
        fields,
        judgement,
        (_QUANTS, _CONTEXT, _PARALLEL, _CACHE),
    )
