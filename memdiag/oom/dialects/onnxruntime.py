"""ONNX Runtime: its arenas on CPUs and GPUs, whose messages look the same.

They differ in details: "nchwc" layouts exist only on CPUs, "GPU=0" and names of CUDA providers only on GPUs. "onnx
runtime error 6:" is the form of Triton Inference Server, which serves several models from one device. An arena grows by
doubling by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.host_memory import PAGE_FILE, WATCH
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Cause, Confidence, Judgement
from memdiag.text import phrase

FORMATS = ("onnxruntime",)
NAMES = {"onnxruntime": "ONNX Runtime"}
ANCHORS = (
    "forrequestedbufferofsize",
    "smallerthanrequestedbytes",
    "cudafailure2",
    "hipfailure2",
    "cudaerrorcudaerrormemory",
    "hiperrorhiperror",
    "cublasfailure3",
    "cudnnfailure",
    "8007000e",
)
EXAMPLES = (
    (
        "onnxruntime",
        (
            "bfc_arena.cc:376 onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested "
            "buffer of size 1073741824"
        ),
    ),
    (
        "onnxruntime",
        (
            "bfc_arena.cc:342 onnxruntime::BFCArena::AllocateRawInternal Available memory of 1048576 is smaller "
            "than requested "
            "bytes of 67108864"
        ),
    ),
)

_BUFFER = pattern(r"Failed to allocate memory for requested buffer of size {requested:bytes}")
_LIMIT = pattern(r"Available memory of {free:bytes} is smaller than requested bytes of {requested:bytes}")
_DRIVER = pattern(
    r"(?:CUDA|HIP) failure (?:2|error:2)\s*:?(?: [^;]{0,60}?out of memory| hipErrorOutOfMemory)"
    r" (?:; GPU={device_index:int})?"
)
_RUNTIME = pattern(r"(?:CUDA|HIP) error (?:cudaErrorMemoryAllocation|hipErrorOutOfMemory) :? out of memory")
_LIBRARY = pattern(
    r"(?:CUBLAS failure 3 : (?:CUBLAS_STATUS_ALLOC_FAILED)? | CUDNN failure \d+ : CUDNN_STATUS_ALLOC_FAILED)"
    r" (?: ; GPU={device_index:int})?"
)
# DirectML: E_OUTOFMEMORY, of the device or of the host.
_DIRECTML = pattern(r"8007000E Not enough memory resources are available to complete this operation")
_CPU = re.compile(r"nchwc|cpuexecutionprovider|onnxruntime_cpu|name:cpu\b|arenacpu|cpu_allocator", re.IGNORECASE)
_GPU = re.compile(
    (
        r"cudaexecutionprovider|tensorrtexecutionprovider|providers_cuda|name:cuda|gpu=\d|cuda_call|migraphx"
        r"|rocmexecutionprovider"
    ),
    re.IGNORECASE,
)
_HIP = re.compile(r"rocm|hip|migraphx", re.IGNORECASE)
_TRITON = re.compile(r"onnxruntimeerror\d:|tritonserver|backendmodelinstance", re.IGNORECASE)
_NO_DEVICE = 32767  # printed if the device could not be queried

_OPTIONS = '[("CUDAExecutionProvider", {%s}), "CPUExecutionProvider"]'
_EXTEND = LazyFix("oom_onnx.extend", "code", "providers=" + _OPTIONS % '"arena_extend_strategy": "kSameAsRequested"')
_SHRINK = LazyFix(
    "oom_onnx.shrink", "code", 'run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0")'
)
_RAISE = LazyFix("oom_onnx.raise", "code", "providers=" + _OPTIONS % '"gpu_mem_limit": %d')
_CONV = LazyFix(
    "oom_onnx.conv",
    "code",
    "providers=" + _OPTIONS % '"cudnn_conv_algo_search": "HEURISTIC", "cudnn_conv_use_max_workspace": "0"',
)
_THREADS = LazyFix(
    "oom_onnx.threads",
    "code",
    (
        "options.intra_op_num_threads = 4; options.inter_op_num_threads = 1; "
        "options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL"
    ),
)
_NO_ARENA = LazyFix("oom_onnx.no-arena", "code", "options.enable_cpu_mem_arena = False")
_SHARE = LazyFix("oom_onnx.share", "flag", 'parameters { key: "gpu_mem_limit" value: { string_value: "4294967296" } }')
_BATCH = LazyFix("oom_onnx.batch", "code", "session.run(None, {name: x[:n]})")


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _BUFFER.finditer(text.text):
        yield _buffer(text, match)
    for match in _LIMIT.finditer(text.text):
        fields = take(match)
        requested, free = number(fields, "requested_bytes") or 0, number(fields, "free_bytes")
        why = phrase("oom_onnx.why.limit", size=shown(requested), free=shown(free))
        raised = replace(_RAISE, change=_RAISE.change % max(8 << 30, 4 * requested))
        judgement, fixes = Judgement("limit", "high", ("capacity",), (why,)), (raised, _EXTEND)
        yield Found(
            match.start(), match.end(), "onnxruntime", "onnxruntime", _backend(text, match), fields, judgement, fixes
        )
    for match in _DIRECTML.finditer(text.text):
        judgement = Judgement("unknown", "low", ("capacity", "host"), (phrase("oom_onnx.why.directml"),))
        yield Found(
            match.start(), match.end(), "onnxruntime", "onnxruntime", "directml", {}, judgement, (_BATCH, PAGE_FILE)
        )
    for head in (_DRIVER, _RUNTIME, _LIBRARY):
        for match in head.finditer(text.text):
            if head is _RUNTIME and "onnx" not in text.text[max(match.start() - 2000, 0) : match.end() + 500].lower():
                continue
            library = head is _LIBRARY
            fields = take(match)
            if (number(fields, "device_index") or 0) >= _NO_DEVICE:
                del fields["device_index"]
            verdict: Cause = "workspace_or_comm" if library else "unknown"
            others: tuple[Cause, ...] = (
                ("capacity", "other_process") if library else ("capacity", "other_process", "workspace_or_comm")
            )
            why = phrase("oom_onnx.why.library") if library else phrase("oom_shared.why.driver")
            backend = "hip" if match[0].lower().startswith("hip") else "cuda"
            judgement = Judgement(verdict, "medium" if library else "low", others, (why,))
            yield Found(
                match.start(),
                match.end(),
                "onnxruntime",
                "onnxruntime",
                backend,
                fields,
                judgement,
                (_CONV, _EXTEND, _BATCH),
            )


def _backend(text: Squeezed, match: re.Match[str]) -> str:
    around = text.text[max(match.start() - 600, 0) : match.end() + 300]
    if _CPU.search(around) and not _GPU.search(around):
        return "cpu"
    return "hip" if _HIP.search(around) else "cuda"


def _buffer(text: Squeezed, match: re.Match[str]) -> Found:
    fields, backend = take(match), _backend(text, match)
    requested = number(fields, "requested_bytes")
    triton = bool(_TRITON.search(text.text, max(match.start() - 800, 0), match.end()))
    size = shown(requested)
    verdict: Cause
    others: tuple[Cause, ...]
    level: Confidence = "low"
    fixes: tuple[LazyFix, ...] = (_BATCH, _EXTEND, _CONV, _SHRINK)
    if requested is None or requested == 0 or requested >= thresholds.ABSURD:
        verdict, others, level, why = (
            "unknown",
            (),
            "high",
            phrase("oom_onnx.why.shape"),
        )
        fixes = ()
    elif backend == "cpu":
        verdict, others, level, why = "host", ("capacity", "unknown"), "medium", phrase("oom_onnx.why.cpu", size=size)
        fixes = (_THREADS, _NO_ARENA, _BATCH, WATCH)
    elif requested < thresholds.SMALL:
        verdict, others, why = (
            "unknown",
            ("limit", "capacity", "host"),
            phrase("oom_onnx.why.little", size=size),
        )
        fixes = (_THREADS, _EXTEND)
    elif triton:
        verdict, others, why = (
            "other_process",
            ("capacity", "unknown"),
            phrase("oom_onnx.why.triton", size=size),
        )
        fixes = (_SHARE, _EXTEND, _BATCH)
    else:
        verdict, others, why = (
            "capacity",
            ("other_process", "unknown", "host"),
            phrase("oom_onnx.why.arena", size=size),
        )
    return Found(
        match.start(),
        match.end(),
        "onnxruntime",
        "onnxruntime",
        backend,
        fields,
        Judgement(verdict, level, others, (why,)),
        fixes,
    )
