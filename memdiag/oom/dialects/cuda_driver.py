"""The driver's "out of memory", as repeated by libraries without an allocator: Numba, PyCUDA, OpenCV, Caffe and others.

Hardly any of them prints a size. The name of the call shows the kind of memory: of the device, of the host (pinned), or
the context, which is a process's first allocation on a device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdiag.oom.dialects.parts import number, shown, whole_lines
from memdiag.oom.model import Fields, Found
from memdiag.oom.squeezed import Squeezed, pattern, take
from memdiag.results.lazy_fix import LazyFix
from memdiag.results.oom import Judgement
from memdiag.text import phrase
from memdiag.units import MIB

FORMATS = ("cuda_driver",)
NAMES = {
    "numba": "Numba",
    "pycuda": "PyCUDA",
    "faiss": "Faiss",
    "mxnet": "MXNet",
    "lightgbm": "LightGBM",
    "dali": "DALI",
    "caffe": "Caffe",
    "theano": "Theano",
    "warp": "Warp",
    "taichi": "Taichi",
    "rocm": "ROCm",
    "hami": "HAMi",
    "thrust": "Thrust",
    "dgl": "DGL",
    "darknet": "Darknet",
    "blender": "Blender",
}
ANCHORS = (
    "cuda_error_out_of_memory",
    "cudaerrormemory",
    "hiperroroutofmemory",
    "failed:outofmemory",
    "synchronize:outofmemory",
    "'outofmemory'",
    "step:outofmemory",
    "gpuapicall)outofmemory",
    "witherroroutofmemory",
    "(2vs.0)outofmemory",
    "assert:outofmemory",
    "erroroutofmemory",
    "error2:outofmemory",
    "error2outofmemory",
    "allocator.c:",
    "[cuda]outofmemory",
    "bytesofdevicememory",
    "bytesondevice",
    "notenoughgpuvideomemory",
    "hsa_status_error_out_of_resources",
    "tritonerror[",
    "cudartunloading:cuda:outofmemory",
    "allocationfailedoutofmemory",
    "allocatefailedoutofmemory",
    "outofmemoryincu",
    "outofgpu",
    "darknet:",
    "dark_cuda",
)
EXAMPLES = (
    (
        "cuda_driver",
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemcpyHtoD results in CUDA_ERROR_OUT_OF_MEMORY",
    ),
    ("cuda_driver", "pycuda._driver.MemoryError: cuMemAllocPitch failed: out of memory"),
    ("cuda_driver", "RuntimeError: CUDA failed with error out of memory"),
    (
        "cuda_driver",
        (
            "alloc fail type FlatData dev 1 space Device stream 0x55d0 size 2147483648 bytes (cudaMalloc error out "
            "of memory [2])"
        ),
    ),
    (
        "cuda_driver",
        "RuntimeError: Could not allocate tensor with 268435456 bytes. There is not enough GPU video memory available!",
    ),
    (
        "cuda_driver",
        "[HAMI-core ERROR (pid:7 thread=140012345678912 allocator.c:53)]: Device 0 OOM 4294967296 / 3221225472",
    ),
)

_CODES = r"(?P<code>CUDA_ERROR_OUT_OF_MEMORY | cudaErrorMemoryAllocation | hipErrorOutOfMemory)"
# Wordings by library. Only the last ones are unspecific.
_WORDINGS = (
    (
        "numba",
        (
            r"(?:\[ (?:CUresult\.CUDA_ERROR_OUT_OF_MEMORY|2) \])? Call to (?P<call>cu\w{3,60}) results in "
            r"CUDA_ERROR_OUT_OF_MEMORY"
        ),
    ),
    (
        "pycuda",
        (
            r"(?<![\w.])(?P<call>cu(?:Mem|Ctx|Module|Device|Array|Graphics|Tex|Link|GL|Stream)\w{0,50}) failed: "
            r"out of memory"
        ),
    ),
    ("opencv", r"\( -217 : Gpu API call \) out of memory (?:in function '?\w{1,60})?"),
    ("ctranslate2", r"CUDA failed with error out of memory"),
    ("caffe", r"Check failed: \w{1,20} == cudaSuccess \( 2 vs\. 0 \) out of memory"),
    (
        "mxnet",
        (
            r"(?:storage_manager|gpu_device_storage|storage)\.h : \d{1,6} : (?:\w{1,40}:)? cudaMalloc"
            r" (?:retry)? failed: out of memory"
        ),
    ),
    ("mxnet", r"storage_manager\.h : \d{1,6} : Memory allocation failed out of memory"),
    ("dgl", r"== cudaErrorCudartUnloading : CUDA : out of memory"),
    (
        "darknet",
        (
            r"(?: dark_cuda\.c : .{0,120}? CUDA Error : out of memory"
            r" | CUDA Error : out of memory (?: : [\w ]{1,40}? )? darknet : [\w./]{1,60} : \d{1,6} )"
        ),
    ),
    ("blender", r"System is out of GPU (?:and shared host)? memory"),
    ("blender", r"CUDA error : Out of memory in (?P<call>cu[A-Z]\w{3,40}) \("),
    ("theano", r"Error allocating {requested:bytes} bytes of device memory \("),
    ("theano", r"(?P<call>cuMem\w{2,40}) : CUDA_ERROR_OUT_OF_MEMORY (?: : out of memory)?"),
    (
        "faiss",
        (
            r"alloc fail (?:type \w{1,60})? dev {device_index:int} space \w{1,20} stream \w{1,30} size"
            r" {requested:bytes} bytes"
            r" (?: \( cudaMalloc error .{0,60}? \[ 2 \] )?"
        ),
    ),
    ("warp", r"Failed to allocate {requested:bytes} bytes on device '? cuda : {device_index:int}"),
    ("taichi", r"CUDA Error CUDA_ERROR_OUT_OF_MEMORY : out of memory while calling (?P<call>[a-z_]{3,40}) "),
    ("lightgbm", r"\[LightGBM\] \[Fatal\] \[CUDA\] out of memory"),
    ("dali", r"CUDA runtime API error cudaErrorMemoryAllocation (?:\(2\))? (?: : out of memory)?"),
    (
        "pytorch",
        r"Could not allocate tensor with {requested:bytes} bytes \. There is not enough GPU video memory available",
    ),
    ("pytorch", r"Unexpected error from (?P<call>cudaGetDeviceCount)\(\) .{0,250}? Error 2: out of memory"),
    ("triton", r"Triton Error \[ (?:CUDA|HIP) \] : (?:Code : 2 ,? Mess{1,3}age :)? out of memory"),
    (
        "hami",
        (
            r"(?: pid : {pid:int} thread=\d{1,20} allocator\.c : \d{1,5} \) \] : )?"
            r" Device {device_index:int} OOM {wanted:bytes} / {limit:bytes}"
        ),
    ),
    ("rocm", r"HSA_STATUS_ERROR_OUT_OF_RESOURCES : The runtime failed to allocate the necessary resources"),
    (
        "thrust",
        (
            r"(?<![\w.])(?:parallel_for|for_each|reduce(?:_by_key)?|(?:radix|merge)_sort|(?:inclusive|exclusive)_scan"
            r"|(?:copy|unique|partition)_\w{1,20}"
            r"|trivial_\w{1,30}|transform\w{0,20}) (?: :? failed (?:(?:on|to) [\w ]{1,20})? ) : out of memory"
        ),
    ),
    ("cuda", r"(?:GPU|CUDA)_? assert: out of memory"),
    ("cuda", r"(?:CUDA|HIP) error [\w./+-]{1,200} : \d{1,6} [:,]? '? out of memory"),
    (
        "cuda",
        (
            r"(?P<call>(?:cuda|hip)(?:Malloc|Host|Mem)\w{0,24}?) (?:\( [^()]{0,80} \) | GpuBuffer::Allocate )? (?:has)?"
            r" (?:failed|error)"
            r" (?:with (?:error)?)? [:,]? out of memory"
        ),
    ),
    ("cuda", r"(?:code|error|err) (?:code)? [=:(]? 2 \)? [:,=]? \(? \"? (?:cudaErrorMemoryAllocation|out of memory) "),
    (
        "cuda",
        (
            r"(?:error|exception|failed|failure|fatal|reason|returned|code|->) [\]\)]? \\? [:=('\"`,\[\]]{0,4}"
            r" (?:2[:,)=]{1,2}\(?)? "
        )
        + _CODES,
    ),
    ("cuda", _CODES + r" (?: \( 2 \) | \) )? [:,] out of memory"),
)
_HEADS = tuple((framework, pattern(wording)) for framework, wording in _WORDINGS)
_ALONE = re.compile(r"(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)(?: \(\d{1,4}\))?[.!]?")
_HOST = re.compile(r"host|pagelock", re.IGNORECASE)
_OPENING = re.compile(r"cuCtxCreate|PrimaryCtxRetain|cudaGetDeviceCount|cuInit|cudaSetDevice", re.IGNORECASE)
# Words of systems that print numbers and have separate dialects.
_OTHERS = re.compile(
    r"ggml|llama_|whisper_|tensorflow|jax|xla|onnxruntime|cupy|rmm/|tensorrt|bfc_allocator|bytes\)fromdevice",
    re.IGNORECASE,
)
_NEAR = 300

_WHO = LazyFix("oom_shared.who", "flag", "nvidia-smi  # AMD: rocm-smi --showpids")
_CONTEXT = LazyFix("oom_cuda.other", "env", "export CUDA_VISIBLE_DEVICES=1")
_SMALLER = LazyFix("oom_cuda.smaller", "code")
_RESTART = LazyFix("oom_cuda.restart", "code", "kubectl delete pod NAME")
_FREE = {
    "numba": LazyFix("oom_cuda.numba", "code", "del array; numba.cuda.current_context().deallocations.clear()"),
    "pycuda": LazyFix("oom_cuda.pycuda", "code", "array.gpudata.free()"),
    "opencv": LazyFix("oom_cuda.opencv", "code", "matrix.release()"),
    "ctranslate2": LazyFix(
        "oom_cuda.ctranslate2",
        "code",
        'WhisperModel(name, device="cuda", compute_type="int8_float16")',
        caveat="oom_shared.accuracy",
    ),
    "darknet": LazyFix("oom_cuda.darknet", "code", "subdivisions=64  # in the .cfg file, with the same batch"),
    "dgl": LazyFix(
        "oom_cuda.dgl", "code", "dgl.dataloading.DataLoader(graph, seeds, NeighborSampler([10, 5]), batch_size=512)"
    ),
    "blender": LazyFix("oom_cuda.blender", "code", "bpy.context.scene.render.use_simplify = True"),
    "faiss": LazyFix("oom_cuda.faiss", "code", "resources.setTempMemory(256 << 20)"),
    "theano": LazyFix("oom_cuda.theano", "env", "THEANO_FLAGS=gpuarray.preallocate=-1"),
}


def find(text: Squeezed) -> Iterator[Found]:
    """Yields the messages in ``text``; of overlapping wordings, the first in the table wins."""
    taken: list[tuple[int, int]] = []
    for framework, head in _HEADS:
        for match in head.finditer(text.text):
            start, end = match.span()
            if any(start < other_end and other_start < end for other_start, other_end in taken[-200:]):
                continue
            if framework in {"cuda", "theano"} and _OTHERS.search(text.text, max(start - _NEAR, 0), end + _NEAR):
                continue
            taken.append((start, end))
            yield _found(start, end, framework, take(match), match)
    for start, end, line in whole_lines(text, _ALONE):
        wrapped = text.text[max(start - 1, 0) : start] in {":", ",", "(", "-", "="}
        if wrapped or _OTHERS.search(text.text, max(start - _NEAR, 0), end + _NEAR):
            continue
        if not any(start < other_end and other_start < end for other_start, other_end in taken):
            yield _found(start, end, "cuda", {}, line)


def _found(start: int, end: int, framework: str, fields: Fields, match: re.Match[str]) -> Found:
    call = match.groupdict().get("call") or ""
    words = match[0].lower()
    backend = "hip" if "hip" in words or framework == "rocm" else "directml" if "videomemory" in words else "cuda"
    if framework == "hami":
        return _share(start, end, fields)
    requested = number(fields, "requested_bytes")
    judgement = Judgement(
        "unknown",
        "low",
        ("capacity", "other_process"),
        (
            phrase("oom_shared.why.driver.size", size=shown(requested))
            if requested
            else phrase("oom_shared.why.driver"),
        ),
    )
    fixes: tuple[LazyFix, ...] = (_FREE[framework], _WHO) if framework in _FREE else (_WHO,)
    if _OPENING.search(call):
        reasons = (phrase("oom_shared.why.opening"),)
        judgement, fixes = Judgement("other_process", "medium", ("unknown", "capacity"), reasons), (_WHO, _CONTEXT)
    elif _HOST.search(call):
        reasons = (phrase("oom_cuda.why.call", call=call),)
        judgement, fixes = Judgement("host", "medium", ("unknown",), reasons), ()
    return Found(start, end, "cuda_driver", framework, backend, fields, judgement, fixes)


def _share(start: int, end: int, fields: Fields) -> Found:
    """Judges messages of HAMi, which limits a container to its fraction of the device."""
    wanted, limit = number(fields, "wanted_bytes"), number(fields, "limit_bytes")
    fields = {name: value for name, value in fields.items() if name != "wanted_bytes"}
    if not wanted:  # a number near 2^64 is invalid
        reasons = (phrase("oom_cuda.why.hami.count", limit=shown(limit)),)
        judgement = Judgement("limit", "medium", ("unknown",), reasons)
        return Found(start, end, "cuda_driver", "hami", "cuda", fields, judgement, (_RESTART,))
    reasons = (phrase("oom_cuda.why.hami", wanted=shown(wanted), limit=shown(limit)),)
    share = LazyFix("oom_cuda.share", "flag", f'nvidia.com/gpumem: "{-(-wanted // MIB)}"  # MiB, at least')
    return Found(
        start, end, "cuda_driver", "hami", "cuda", fields, Judgement("limit", "high", (), reasons), (share, _SMALLER)
    )
