"""tinygrad: Python's MemoryError for memory of the device, with the size of the request at most."""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import Texts, phrase, phrase_of

FORMATS = ("tinygrad",)
NAMES = {"tinygrad": "tinygrad"}
ANCHORS = ("bytes:nomemoryisavailable", "oomwhileallocatingsize", "cudaerror2,outofmemory")
EXAMPLES = (
    ("tinygrad", "MemoryError: Cannot allocate 8589934592 bytes: no memory is available."),
    ("tinygrad", "MemoryError: Metal OOM while allocating size=5368709120"),
    ("tinygrad", "RuntimeError: CUDA Error 2, out of memory"),
)
TEXTS: Texts = {
    "why": {
        "en": "The device could not serve the request of tinygrad. The message does not say how much memory is in use.",
        "zh": "设备无法满足 tinygrad 的请求。报错没有给出已用内存。",
    },
    "batch": {
        "en": "Use a smaller batch; DEBUG=2 prints the memory in use after each kernel",
        "zh": "使用更小的批次；DEBUG=2 会在每个内核后打印已用内存",
    },
    "batch.when": {"en": "tinygrad", "zh": "tinygrad"},
    "batch.caveat": {
        "en": "tinygrad's cache of buffers counts as used memory",
        "zh": "tinygrad 缓存的缓冲区也算已用内存",
    },
}

_HEADS = (
    ("hip", pattern(r"MemoryError: Cannot allocate {requested:bytes} bytes: no memory is available\.?")),
    ("metal", pattern(r"MemoryError: Metal OOM while allocating size = {requested:bytes}")),
    ("cuda", pattern(r"(?:RuntimeError:)? CUDA Error 2, out of memory")),
)
_BATCH = LazyFix("batch", "env", "DEBUG=2 python train.py", texts=TEXTS)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for backend, head in _HEADS:
        for match in head.finditer(text.text):
            if text.is_code(match.start()):
                continue
            fields = take(match)
            requested = number(fields, "requested_bytes") or 0
            if requested >= thresholds.ABSURD:
                judgement = Judgement("unknown", "high", (), (phrase("oom_shared.why.shape", size=shown(requested)),))
            else:
                judgement = Judgement("capacity", "low", ("other_process", "unknown"), (phrase_of(TEXTS, "why"),))
            fixes = () if requested >= thresholds.ABSURD else (_BATCH,)
            yield Found(match.start(), match.end(), "tinygrad", "tinygrad", backend, fields, judgement, fixes)
