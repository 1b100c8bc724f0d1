"""OpenVINO on Intel's GPUs: one buffer above the driver's limit, buffers above the memory, and errors of the driver.

Texts of src/plugins/intel_gpu/src/runtime/ocl/ocl_engine.cpp and ocl_common.hpp. The limit of one buffer is
CL_DEVICE_MAX_MEM_ALLOC_SIZE: 4 GiB on many devices, 1 GiB under WSL.
"""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

from collections.abc import Iterator

from memdiag.diagnosis import thresholds
from memdiag.oom.dialects.parts import number, shown
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import Texts, phrase, phrase_of

FORMATS = ("openvino",)
NAMES = {"openvino": "OpenVINO"}
ANCHORS = ("maxsizeofmemory", "cl_out_of_resourcesexception")
EXAMPLES = (
    (
        "openvino",
        (
            "Check '!exceed_allocatable_mem_size' failed: [GPU] Exceeded max size of memory object allocation: "
            "requested 6442450944 bytes, but max alloc size supported by device is 4294959104 bytes."
        ),
    ),
    (
        "openvino",
        (
            "[GPU] Exceeded max size of memory allocation: Required 9663676416 bytes, already occupied : 2147483648 "
            "bytes, but available memory size is 8589934592 bytes"
        ),
    ),
    ("openvino", "[GPU] CL_OUT_OF_RESOURCES exception."),
)
TEXTS: Texts = {
    "why.object": {
        "en": "The driver allows at most {limit} in one buffer, even if more memory is free. {size} was requested.",
        "zh": "驱动允许单个缓冲区最多 {limit}，即使有更多空闲内存。请求了 {size}。",
    },
    "why.all": {
        "en": "The model needs {needed} in total, but the device has {total}.",
        "zh": "模型共需要 {needed}，而设备只有 {total}。",
    },
    "why.resources": {
        "en": "The driver ran out of a resource, which is often memory. It reports the same error after a device hang.",
        "zh": "驱动的某种资源耗尽，通常是内存。设备挂起后也会报告同样的错误。",
    },
    "large": {
        "en": "Let OpenVINO allocate buffers above the driver's limit",
        "zh": "允许 OpenVINO 分配超过驱动上限的缓冲区",
    },
    "large.when": {"en": "OpenVINO, if its release has this property", "zh": "OpenVINO，且其版本支持该属性"},
    "large.caveat": {"en": "kernels become slower", "zh": "内核会变慢"},
    "shapes": {
        "en": "Use a smaller batch, or shorter inputs of a fixed size",
        "zh": "使用更小的批次，或固定大小的更短输入",
    },
    "shapes.when": {"en": "OpenVINO", "zh": "OpenVINO"},
    "bits": {"en": "Convert the weights to fewer bits", "zh": "把权重转换为更少的位数"},
    "bits.when": {"en": "OpenVINO", "zh": "OpenVINO"},
    "driver": {
        "en": "Look for a hang of the GPU in the log of the Linux kernel; if there is one, update the driver",
        "zh": "在 Linux 内核日志中查找 GPU 挂起；如果有，则更新驱动",
    },
    "driver.when": {"en": "OpenVINO on Linux", "zh": "Linux 上的 OpenVINO"},
}

_OBJECT = pattern(
    r"Exceeded max size of memory object allocation : requested {requested:bytes} bytes ,?"
    r" but max alloc size (?:supported by device)? is {limit:bytes} bytes"
)
_ALL = pattern(
    r"Exceeded max size of memory allocation : Required {needed:bytes} bytes"
    r" (?: , already occupied : {allocated:bytes} bytes)? ,? but (?:(?:available)? memory|max alloc) size is"
    r" {total:bytes} bytes"
)
_RESOURCES = pattern(r"\[GPU\] CL_OUT_OF_RESOURCES exception | to avoid CL_OUT_OF_RESOURCES exception")

_LARGE = LazyFix(
    "large", "code", 'core.compile_model(model, "GPU", {"GPU_ENABLE_LARGE_ALLOCATIONS": "YES"})', texts=TEXTS
)
_SHAPES = LazyFix("shapes", "code", "model.reshape([1, 3, 640, 640])", texts=TEXTS)
_BITS = LazyFix("bits", "code", "model = nncf.compress_weights(model)", caveat="oom_shared.accuracy", texts=TEXTS)
_DRIVER = LazyFix("driver", "flag", "dmesg | grep -iE 'gpu hang|i915|xe '", texts=TEXTS)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for match in _OBJECT.finditer(text.text):
        fields = take(match)
        requested, limit = number(fields, "requested_bytes"), number(fields, "limit_bytes")
        if requested is None or requested >= thresholds.ABSURD:
            why = phrase("oom_shared.why.shape", size=shown(requested))
            yield _found(match.start(), match.end(), {}, Judgement("unknown", "high", (), (why,)), ())
            continue
        why = phrase_of(TEXTS, "why.object", limit=shown(limit), size=shown(requested))
        judgement = Judgement("limit", "high", ("capacity",), (why,))
        yield _found(match.start(), match.end(), fields, judgement, (_LARGE, _SHAPES, _BITS))
    for match in _ALL.finditer(text.text):
        given = take(match)
        needed, total = number(given, "needed_bytes"), number(given, "total_bytes")
        why = phrase_of(TEXTS, "why.all", needed=shown(needed), total=shown(total))
        fields = {name: size for name, size in given.items() if name != "needed_bytes"}
        occupied = number(fields, "allocated_bytes")
        if needed is not None and occupied is not None and needed > occupied:
            fields["requested_bytes"] = needed - occupied
        yield _found(match.start(), match.end(), fields, Judgement("capacity", "high", (), (why,)), (_SHAPES, _BITS))
    end = -1
    for match in _RESOURCES.finditer(text.text):
        if match.start() > end + _REACH or end < 0:
            why = phrase_of(TEXTS, "why.resources")
            judgement = Judgement("unknown", "low", ("capacity",), (why,))
            yield _found(match.start(), match.end(), {}, judgement, (_SHAPES, _BITS, _DRIVER))
        end = match.end()


_REACH = 600  # the same exception names the error twice


def _found(start: int, end: int, fields: Fields, judgement: Judgement, fixes: tuple[LazyFix, ...]) -> Found:
    return Found(start, end, "openvino", "openvino", "xpu", fields, judgement, fixes)
