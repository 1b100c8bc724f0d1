"""CUDA's and HIP's "out of memory" without a number: raised by driver requests outside PyTorch's pool.

The traceback above shows the operation: capturing a CUDA graph, waking a sleeping pool, pinning host memory, or opening
a device.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from memdiag.oom.caching import bare_heads
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase

FORMATS = ("cuda_bare",)
ANCHORS = ("error:outofmemory", "error(2):outofmemory", "cumem_allocator", "cudaoutofmemory", "nvml_success==")
EXAMPLES = (
    (
        "cuda_bare",
        (
            "RuntimeError: CUDA error: out of memory\n"
            "CUDA kernel errors might be asynchronously reported at some other API call"
        ),
    ),
    ("cuda_bare", "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139"),
    ("cuda_bare", "RuntimeError: CUDA out of memory."),
)

_HEAD = pattern(
    r"(?P<backend>CUDA|HIP) (?:driver|runtime)? error (?: : | \( 2 \) : ) out of memory"
    r" (?: at (?P<place>[\w./\\:<>+-]{1,200}) : \d{1,6} )?"
    r" (?: Search for [`'\" ]{0,2} cudaErrorMemoryAllocation .{0,120} for more information )?"
    r" (?: [.]? (?:CUDA|HIP) kernel errors might be asynchronously reported at some other API call )?"
)
# PyTorch asks NVML for the free memory for its message, only when memory ran out, and gets no answer.
_NVML = pattern(r"NVML_SUCCESS == \w{1,40} INTERNAL ASSERT FAILED at .{0,120}? CUDACachingAllocator\.cpp")
_BEFORE = 1500  # squeezed characters of traceback above
# programs whose messages have numbers, and which have separate dialects
_OTHERS = re.compile(r"ggml|llama_|llamarunner|whisper_", re.IGNORECASE)
_THC = re.compile(r"THC")

# The operation, by words in the traceback above.
_DOING = {
    "waking": re.compile(r"cumem_allocator|wake_up|create_and_map", re.IGNORECASE),
    "capture": re.compile(
        r"capture_end|capture_begin|capture_model|graph_capture|CUDAGraph|cuda_graph|torch/cuda/graphs", re.IGNORECASE
    ),
    "pinning": re.compile(r"pin_memory|cudaHostAlloc|HostAllocator|pinned_memory", re.IGNORECASE),
    "opening": re.compile(r"set_device\(|_cuda_init|CUDAinitialization", re.IGNORECASE),
    "vllm": re.compile(r"vllm", re.IGNORECASE),
}

_UTILIZATION = LazyFix(
    "oom_cuda.utilization", "flag", "--gpu-memory-utilization 0.80", caveat="oom_shared.fewer-tokens"
)
_EMPTY = LazyFix("oom_cuda.empty", "code", "torch.cuda.empty_cache()")
_EAGER = LazyFix("oom_shared.eager", "flag", "--enforce-eager", {"program": "vLLM"})
_GRAPHS = LazyFix("oom_cuda.graphs", "code", "torch.cuda.graph(graph, pool=pool)")
_UNPINNED = LazyFix("oom_cuda.unpinned", "code", "DataLoader(..., pin_memory=False)")
_WHO = LazyFix("oom_shared.who", "code", "nvidia-smi", when="oom_cuda.who.when")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    places: list[tuple[int, int, str]] = []
    for match in _HEAD.finditer(text.text):
        around = text.text[max(match.start() - 300, 0) : match.end() + 200]
        if text.is_code(match.start()) or _OTHERS.search(around) or _THC.search(text.text, match.start(), match.end()):
            continue
        places.append((match.start(), match.end(), match["backend"].lower()))
    places += [
        (match.start(), match.end(), "cuda") for match in _NVML.finditer(text.text) if not text.is_code(match.start())
    ]
    places += [(start, end, "cuda") for start, end in bare_heads(text, "cuda")]
    if not places:
        return
    doing = {name: [match.start() for match in words.finditer(text.text)] for name, words in _DOING.items()}
    for start, end, backend in sorted(places):
        line = text.line_at(start)
        done = {
            name
            for name, starts in doing.items()
            if bisect_left(starts, end + 60) > bisect_left(starts, start - _BEFORE)
        }
        # vLLM's workers print rank and process before each line.
        if "waking" in done or (line.rank is not None and line.log_pid is not None):
            done.add("vllm")
        judgement, fixes = _cause(done)
        yield Found(start, end, "cuda_bare", "vllm" if "vllm" in done else "pytorch", backend, {}, judgement, fixes)


def _cause(done: set[str]) -> tuple[Judgement, tuple[LazyFix, ...]]:
    """Returns the cause that the operation makes likely."""
    if "waking" in done:
        reasons = (phrase("oom_cuda.why.waking"),)
        return Judgement("limit", "medium", ("unknown", "other_process"), reasons), (_UTILIZATION, _EMPTY)
    if "capture" in done and "vllm" in done:
        reasons = (phrase("oom_cuda.why.capture.vllm"),)
        return Judgement("limit", "medium", ("workspace_or_comm", "unknown"), reasons), (_UTILIZATION, _EAGER)
    if "capture" in done:
        reasons = (phrase("oom_cuda.why.capture"),)
        return Judgement("workspace_or_comm", "medium", ("capacity", "unknown"), reasons), (_GRAPHS,)
    if "pinning" in done:
        reasons = (phrase("oom_cuda.why.pinning"),)
        return Judgement("host", "medium", ("unknown",), reasons), (_UNPINNED,)
    if "opening" in done:
        reasons = (phrase("oom_shared.why.opening"),)
        return Judgement("other_process", "medium", ("unknown", "capacity"), reasons), (_WHO,)
    reasons = (phrase("oom_cuda.why.bare"),)
    return Judgement("unknown", "low", ("capacity", "other_process"), reasons), (_WHO,)
