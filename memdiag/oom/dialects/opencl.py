"""OpenCL: a driver that cannot allocate a buffer, alone or through PyOpenCL. The message has no sizes.

A buffer may also be larger than CL_DEVICE_MAX_MEM_ALLOC_SIZE, which is often a quarter of the memory of the device.
"""

# ruff: noqa: RUF001 - Chinese has full-width signs

from __future__ import annotations

from collections.abc import Iterator

from memdiag.oom.model import Found
from memdiag.oom.squeezed import Squeezed, pattern
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import Texts, phrase_of

FORMATS = ("opencl",)
NAMES = {"opencl": "OpenCL"}
ANCHORS = ("mem_object_allocation_failure", "memoryobjectallocationfailure", "_cl.memoryerror")
EXAMPLES = (
    ("opencl", "pyopencl._cl.MemoryError: clEnqueueReadBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE"),
    ("opencl", "clCreateBuffer failed with error CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)"),
)
TEXTS: Texts = {
    "why": {
        "en": "The OpenCL driver could not allocate a buffer on the device. The message has no sizes.",
        "zh": "OpenCL 驱动无法在设备上分配缓冲区。报错中没有大小。",
    },
    "pieces": {
        "en": "Use smaller buffers: one may be at most as large as CL_DEVICE_MAX_MEM_ALLOC_SIZE, even if more is free",
        "zh": "使用更小的缓冲区：即使有更多空闲内存，单个缓冲区也不能超过 CL_DEVICE_MAX_MEM_ALLOC_SIZE",
    },
    "pieces.when": {"en": "OpenCL", "zh": "OpenCL"},
    "pieces.caveat": {
        "en": "other programs also use the memory of the device",
        "zh": "其他程序也会占用设备内存",
    },
}

_HEAD = pattern(
    r"(?:pyopencl\._cl\.(?:MemoryError|RuntimeError):)? (?:\w{2,40} failed:)? "
    r"(?:(?:CL_)? MEM_OBJECT_ALLOCATION_FAILURE | Memory object allocation failure)"
)
_PYOPENCL = pattern(r"pyopencl\._cl\.MemoryError: \w{2,40} failed: \w{2,40}")
_PIECES = LazyFix("pieces", "flag", "clinfo | grep -iE 'max memory allocation|global memory size'", texts=TEXTS)


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``."""
    for head in (_PYOPENCL, _HEAD):
        for match in head.finditer(text.text):
            if not text.is_code(match.start()):
                judgement = Judgement("capacity", "low", ("limit", "other_process"), (phrase_of(TEXTS, "why"),))
                yield Found(match.start(), match.end(), "opencl", "opencl", "opencl", {}, judgement, (_PIECES,))
