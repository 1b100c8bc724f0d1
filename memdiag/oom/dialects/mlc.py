"""MLC LLM, whose model does not fit into its share of a device, and errors of devices in TVM, on which it runs.

MLC LLM gives the model a share of each device (``gpu_memory_utilization``, default 0.85). Its message names this share,
the weights and the temporary buffers, but not the KV cache, which must fit as well (cpp/serve/config.cc).
"""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import Texts, phrase_of

FORMATS = ("mlc", "tvm")
NAMES = {"mlc": "MLC LLM", "tvm": "TVM"}
ANCHORS = (
    "insufficientgpumemoryerror",
    "isfalse:cuda:outofmemory",
    "rocmhiperror",
    "vk_error_out_of_device_memory",
)
EXAMPLES = (
    (
        "mlc",
        (
            "TVMError: Check failed: (output_res.IsOk()) is false: Insufficient GPU memory error: The available single "
            "GPU memory is 4000.000 MB, which is less than the sum of model weight size (4200.500 MB) and temporary "
            "buffer size (600.250 MB)."
        ),
    ),
    ("tvm", "InternalError: Check failed: (e == cudaSuccess) is false: CUDA: out of memory"),
    ("tvm", "ROCM HIP Error: hipMalloc((void**) &ret, nbytes) failed with error: out of memory"),
    ("tvm", "Check failed: (__e == VK_SUCCESS) is false: Vulkan Error, code=-2: VK_ERROR_OUT_OF_DEVICE_MEMORY"),
)
TEXTS: Texts = {
    "why.sum": {
        "en": "The weights ({weights}) and temporary buffers ({buffers}) need more than the {share} "
        "that MLC LLM may use of one device.",
        "zh": "权重（{weights}）和临时缓冲区（{buffers}）超过 MLC LLM 在单个设备上可用的 {share}。",
    },
    "why.rest": {
        "en": "The weights ({weights}) and temporary buffers ({buffers}) fit into the {share} "
        "that MLC LLM may use of one device, so its KV cache does not.",
        "zh": "权重（{weights}）和临时缓冲区（{buffers}）在 MLC LLM 单个设备可用的 {share} 之内，放不下的是 KV 缓存。",
    },
    "why.tvm": {
        "en": "The driver refused a request of TVM. The message prints no sizes.",
        "zh": "驱动拒绝了 TVM 的请求。报错没有给出大小。",
    },
    "share": {"en": "Let MLC LLM use a larger share of the device", "zh": "让 MLC LLM 使用设备更大的比例"},
    "share.when": {"en": "MLC LLM (default 0.85)", "zh": "MLC LLM（默认 0.85）"},
    "share.caveat": {"en": "less memory remains for other programs", "zh": "留给其他程序的内存会减少"},
    "prefill": {"en": "Compile the model for smaller temporary buffers", "zh": "以更小的临时缓冲区编译模型"},
    "prefill.when": {"en": "MLC LLM", "zh": "MLC LLM"},
}

_DEFAULT_SHARE = 0.85
_SHARE = LazyFix("share", "flag", '--overrides "gpu_memory_utilization=0.95"', caveat="share.caveat", texts=TEXTS)
_PREFILL = LazyFix("prefill", "flag", "mlc_llm gen_config … --prefill-chunk-size 512", texts=TEXTS)
_CONTEXT = LazyFix("oom_shared.context", "flag", '--overrides "context_window_size=4096"', {"program": "MLC LLM"})
_SPREAD = LazyFix("oom_shared.spread", "flag", '--overrides "tensor_parallel_shards=2"', {"program": "MLC LLM"})
_BITS = LazyFix("oom_shared.bits", "flag", "--quantization q4f16_1", {"program": "MLC LLM"})

_SUM = pattern(
    r"Insufficient GPU memory error: The available single GPU memory is {limit:size}, which is less than the sum of"
    r" model weight size \({weights:size}\) and temporary buffer size \({buffers:size}\)"
)
_TVM = (
    ("cuda", pattern(r"is false: CUDA: out of memory")),
    ("hip", pattern(r"ROCM HIP Error: hipMalloc .{0,60} failed with error: out of memory")),
    ("vulkan", pattern(r"Vulkan Error, code=-\d{1,2}: VK_ERROR_OUT_OF_DEVICE_MEMORY")),
)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _SUM.finditer(text.text):
        if text.is_code(match.start()):
            continue
        fields = take(match)
        share, weights, buffers = (number(fields, f"{name}_bytes") or 0 for name in ("limit", "weights", "buffers"))
        words = {"share": shown(share), "weights": shown(weights), "buffers": shown(buffers)}
        if weights + buffers > share:
            judgement = Judgement("capacity", "high", ("limit",), (phrase_of(TEXTS, "why.sum", **words),))
            largest = (_PREFILL, _BITS) if buffers > weights else (_BITS, _PREFILL)
            is_close = weights + buffers < share / _DEFAULT_SHARE
            fixes = (_SHARE, *largest, _SPREAD) if is_close else (*largest, _SPREAD, _SHARE)
        else:
            judgement = Judgement("limit", "medium", ("capacity",), (phrase_of(TEXTS, "why.rest", **words),))
            fixes = (_CONTEXT, _SHARE, _PREFILL, _SPREAD)
        yield Found(match.start(), match.end(), "mlc", "mlc", "", {"limit_bytes": share}, judgement, fixes)
    for backend, form in _TVM:
        for match in form.finditer(text.text):
            if not text.is_code(match.start()):
                judgement = Judgement("unknown", "low", ("capacity", "other_process"), (phrase_of(TEXTS, "why.tvm"),))
                yield Found(match.start(), match.end(), "tvm", "tvm", backend, {}, judgement, ())
