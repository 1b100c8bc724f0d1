from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form, integer, whole_bytes
from tests.oom.single import commands, single

_BYTES = {"requested": whole_bytes("requested")}
_PLACED = _BYTES | {"device": integer("device_index", 0, 15)}
FORMS = [
    Form(
        "cuda_driver",
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAllocManaged results in CUDA_ERROR_OUT_OF_MEMORY",
    ),
    Form("cuda_driver", "pycuda._driver.MemoryError: cuModuleLoadDataEx failed: out of memory - "),
    Form("cuda_driver", "RuntimeError: CUDA failed with error out of memory"),
    Form(
        "cuda_driver",
        "F0102 03:04:05.678901 4711 syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory",
    ),
    Form(
        "cuda_driver",
        "MemoryError: Error allocating {requested} bytes of device memory (CNMEM_STATUS_OUT_OF_MEMORY).",
        _BYTES,
    ),
    Form(
        "cuda_driver",
        "Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type TemporaryMemoryBuffer dev {device} "
        "space Device stream 0x7f01 size {requested} bytes (cudaMalloc error out of memory [2])",
        _PLACED,
    ),
    Form("cuda_driver", "RuntimeError: Failed to allocate {requested} bytes on device 'cuda:{device}'", _PLACED),
    Form(
        "cuda_driver",
        (
            "RuntimeError: Could not allocate tensor with {requested} bytes. There is not enough GPU video memory "
            "available!"
        ),
        _BYTES,
    ),
]


@pytest.mark.parametrize(
    ("text", "framework", "backend", "cause"),
    [
        (
            "CudaAPIError: [2] Call to cuDevicePrimaryCtxRetain results in CUDA_ERROR_OUT_OF_MEMORY",
            "numba",
            "cuda",
            "other_process",
        ),
        ("pycuda._driver.MemoryError: cuMemHostAlloc failed: out of memory", "pycuda", "cuda", "host"),
        (
            "cv2.error: gpu_mat.cpp:9: error: (-217:Gpu API call) out of memory in function 'alloc'",
            "opencv",
            "cuda",
            "unknown",
        ),
        ("[LightGBM] [Fatal] [CUDA] out of memory /x/cuda_tree.cpp 31", "lightgbm", "cuda", "unknown"),
        ("RuntimeError: Triton Error [CUDA]: out of memory", "triton", "cuda", "unknown"),
        ("RuntimeError: Triton Error [HIP]:  Code: 2, Messsage: out of memory", "triton", "hip", "unknown"),
        (
            "tensorview/tensor.h 31\ncuda failed with error 2 out of memory. use CUDA_LAUNCH_BLOCKING=1",
            "cuda",
            "cuda",
            "unknown",
        ),
        ("GPUassert: out of memory kernel.cu 31", "cuda", "cuda", "unknown"),
        ("hipErrorOutOfMemory", "cuda", "hip", "unknown"),
        (
            "terminate: thrust::system_error: parallel_for failed: cudaErrorMemoryAllocation: out of memory",
            "cuda",
            "cuda",
            "unknown",
        ),
        (
            "thrust::system::system_error\n  what():  inclusive_scan failed to synchronize: out of memory",
            "thrust",
            "cuda",
            "unknown",
        ),
        ("  what():  radix_sort: failed on 1st step: out of memory", "thrust", "cuda", "unknown"),
        ('CUDA error at kernel.cu:31 code=2(cudaErrorMemoryAllocation) "cudaMalloc(&p, n)"', "cuda", "cuda", "unknown"),
        ("cuvidCreateDecoder(&h, &p) failed -> CUDA_ERROR_OUT_OF_MEMORY: out of memory", "cuda", "cuda", "unknown"),
    ],
)
def test_framework_backend_and_cause_of_each_driver_error(text, framework, backend, cause):
    message = single(text)
    assert (message.dialect, message.framework, message.backend, message.judgement.verdict) == (
        "cuda_driver",
        framework,
        backend,
        cause,
    )


def test_exceeding_a_memory_share_of_hami_is_a_limit():
    text = "[HAMI-core ERROR (pid:31 thread=140012345678912 allocator.c:53)]: Device 2 OOM 5368709120 / 4294967296"
    message = single(text)
    assert (message.framework, message.judgement.verdict) == ("hami", "limit")
    assert message.fields == {"device_index": 2, "limit_bytes": 4 << 30, "pid": 31}
    assert message.findings[0].title == "A memory limit of 4.00 GiB was reached"
    assert 'nvidia.com/gpumem: "5120"' in commands(text)


def test_a_negative_hami_counter_is_reported_as_its_own_error():
    text = (
        f"[4pdvGPU ERROR (pid:31 thread=140012345678912 allocator.c:49)]: Device 0 OOM {(1 << 64) - 4096} / 4294967296"
    )
    (reason,) = single(text).judgement.reasons
    assert "below zero" in reason


@pytest.mark.parametrize(
    "text",
    [
        "case cudaErrorMemoryAllocation: return false;",
        "    hipErrorOutOfMemory = 2,",
        "CUDA_ERROR_OUT_OF_MEMORY means that the driver had no memory.",
        "if (status == cudaErrorMemoryAllocation) {",
    ],
)
def test_names_of_constants_are_not_a_message(text):
    assert not read_text(text).messages


@pytest.mark.parametrize(
    ("text", "framework", "advised"),
    [
        (
            (
                "dgl._ffi.base.DGLError: [01:02:03] /x/cuda_device_api.cc:7: Check failed: e == cudaSuccess || e == "
                "cudaErrorCudartUnloading: CUDA: out of memory"
            ),
            "dgl",
            "NeighborSampler",
        ),
        (
            "CUDA Error: out of memory\ndarknet: ./src/cuda.c:7: check_error: Assertion `0' failed.",
            "darknet",
            "subdivisions",
        ),
        (
            (
                " CUDA status Error: file: ./src/dark_cuda.c : () : line: 7 : build time: Jan  2 2034 - 03:04:05 \n\n"
                " CUDA Error: out of memory"
            ),
            "darknet",
            "subdivisions",
        ),
        ("Error: System is out of GPU and shared host memory", "blender", "use_simplify"),
        ("CUDA error: Out of memory in cuMemAlloc(&device_pointer, size)", "blender", "use_simplify"),
        (
            "[01:02:03] src/storage/./pooled_storage_manager.h:7: Memory allocation failed out of memory",
            "mxnet",
            "nvidia-smi",
        ),
        ("cudaMalloc GpuBuffer::Allocate failed out of memory", "cuda", "nvidia-smi"),
        ("CUDA error #2 (cudaErrorMemoryAllocation): out of memory.", "cuda", "nvidia-smi"),
    ],
)
def test_programs_without_pytorch_get_no_advice_on_pytorch(text, framework, advised):
    message = single(text)
    assert (message.dialect, message.framework) == ("cuda_driver", framework)
    lines = commands(text)
    assert advised in lines
    assert "train.py" not in lines
    assert "torch" not in lines


def test_a_place_in_the_source_may_come_before_the_error():
    message = single("RuntimeError: Failed: CUDA error /srv/example/csrc/buffer.cpp:7 'out of memory'")
    assert (message.dialect, message.framework) == ("cuda_driver", "cuda")
