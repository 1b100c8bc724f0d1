"""TensorRT-LLM: the driver's refusals in its C++ runtime, and the executor that could not be created.

Its engine allocates weights first, then buffers for the largest batch and number of tokens, then a fraction of the
remaining memory for the KV cache (``free_gpu_memory_fraction``, default 0.9). TensorRT's own lines, which it prints
too, belong to ``tensorrt``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("tensorrt",)
NAMES = {"tensorrt-llm": "tensorrt-llm"}
ANCHORS = ("executorcreationfailed", "cudaruntimeerrorin")
EXAMPLES = (
    ("tensorrt", "RuntimeError: Executor creation failed due to insufficient GPU memory."),
    (
        "tensorrt",
        (
            "[TensorRT-LLM][ERROR] CUDA runtime error in error: "
            "out of memory (/src/tensorrt_llm/cpp/runtime/ipcUtils.cpp:51)"
        ),
    ),
)

_EXECUTOR = pattern(r"Executor creation failed due to insufficient GPU memory")
_RUNTIME = pattern(
    r"(?:\[TensorRT-LLM\]\[ERROR\])? CUDA runtime error in (?P<call>:{0,2} [\w:.>-]{1,60} (?:\( .{0,200}? \))?) : "
    r"out of memory"
    r" (?P<place>\( [\w./+-]{0,200} tensorrt_llm [\w./+-]{0,200} (?::\d{1,6})? \))?"
)
_IS_LLM = re.compile(r"tensorrt-llm|tensorrt_llm|trt-llm|tllm", re.IGNORECASE)
_MESSAGE_OF_PYTORCH = re.compile(r"triedtoallocate", re.IGNORECASE)  # PyTorch's own message after it has the sizes
_REACH = 600

TOKENS = LazyFix("oom_tensorrt_llm.tokens", "flag", "--max_num_tokens 2048 --max_batch_size 16")
CACHE = LazyFix(
    "oom_tensorrt_llm.cache", "flag", "--kv_cache_free_gpu_memory_fraction 0.6", caveat="oom_shared.fewer-tokens"
)
SPREAD = LazyFix("oom_shared.spread", "flag", "--tp_size 2", when="oom_tensorrt_llm.spread.when")
BITS = LazyFix("oom_shared.bits", "flag", "--quantization fp8", when="oom_tensorrt_llm.bits.when")


def is_llm(around: str) -> bool:
    """Returns whether TensorRT-LLM prints the surrounding lines."""
    return _IS_LLM.search(around) is not None


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _EXECUTOR.finditer(text.text):
        if _MESSAGE_OF_PYTORCH.search(text.text, match.end(), match.end() + _REACH):
            continue
        why = phrase("oom_tensorrt_llm.why.executor")
        judgement = Judgement("capacity", "medium", ("limit", "other_process"), (why,))
        yield Found(
            match.start(), match.end(), "tensorrt", "tensorrt-llm", "cuda", {}, judgement, (TOKENS, CACHE, SPREAD, BITS)
        )
    for match in _RUNTIME.finditer(text.text):
        if not is_llm(text.text[max(match.start() - 300, 0) : match.end() + 100]):
            continue
        reasons = (
            phrase("oom_tensorrt_llm.why.runtime"),
            phrase("oom_tensorrt_llm.why.grow"),
        )
        judgement = Judgement("capacity", "low", ("limit", "other_process", "unknown"), reasons)
        yield Found(
            match.start(), match.end(), "tensorrt", "tensorrt-llm", "cuda", {}, judgement, (CACHE, TOKENS, SPREAD, BITS)
        )
