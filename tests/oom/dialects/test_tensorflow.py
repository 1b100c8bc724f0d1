from __future__ import annotations

import pytest

from tests.oom.message_forms import GIB, MIB, Form, integer, shape, unit_size, whole_bytes
from tests.oom.single import commands, single

FORMS = [
    Form(
        "tensorflow",
        "ResourceExhaustedError: OOM when allocating tensor with shape{shape} and type string on "
        "/job:localhost/replica:0/task:0/device:GPU:{device} by allocator GPU_{device}_bfc",
        {"shape": shape(), "device": integer("device_index", 0, 9)},
        {"dtype": "string"},
    ),
    Form(
        "tensorflow",
        "tensorflow ResourceExhaustedError: OOM when allocating tensor with shape{shape}",
        {"shape": shape()},
    ),
    Form(
        "tensorflow",
        "W tensorflow/core/common_runtime/bfc_allocator.cc:431] Allocator (GPU_{device}_bfc) ran out of memory trying "
        "to allocate {size} (rounded to 4096)requested by op conv1/Conv2D",
        {"device": integer("device_index", 0, 9), "size": unit_size("requested", "{:.2f}MiB", MIB)},
    ),
    Form(
        "tensorflow",
        "E tensorflow/stream_executor/cuda/cuda_driver.cc:924] failed to allocate 3.39G ({requested} bytes) from "
        "device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        {"requested": whole_bytes("requested", 1 << 40)},
    ),
    Form(
        "tensorflow",
        (
            "W tensorflow/core/framework/cpu_allocator_impl.cc:81] Allocation of {requested} exceeds 10% of free "
            "system memory."
        ),
        {"requested": whole_bytes("requested", 1 << 40)},
    ),
    Form(
        "tensorflow",
        "tensorflow: Ran out of memory trying to allocate {size}.  See logs for memory state.",
        {"size": unit_size("requested", "{:.2f}GiB", GIB, 1 << 38)},
    ),
    Form(
        "tensorflow",
        "ResourceExhaustedError: OOM when allocating tensor of shape [] and type float",
        {},
        {"shape": [], "dtype": "float", "requested_bytes": 4},
    ),
    Form(
        "tensorflow",
        "ResourceExhaustedError: {{{{function_node __wrapped__AddV2_device_/job:localhost/replica:0/task:0/device:GPU:"
        "{device}}}}} failed to allocate memory [Op:AddV2]",
        {"device": integer("device_index", 0, 9)},
    ),
]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float", 4), ("double", 8), ("half", 2), ("bfloat16", 2), ("complex64", 8), ("int8", 1), ("bool", 1)],
)
def test_bytes_follow_from_shape_and_type(dtype, size):
    message = single(
        f"OOM when allocating tensor with shape[10,20,30] and type {dtype} on /job:localhost/device:GPU:0 by allocator "
        "GPU_0_bfc"
    )
    assert message.fields["requested_bytes"] == 6000 * size
    assert message.fields["dtype"] == dtype


def test_shrinking_requests_at_start_up_are_one_message_about_other_processes():
    sizes = [100_000_000, 90_000_000, 81_000_000, 72_900_000]
    message = single(
        "\n".join(
            f"cuda_driver.cc:924] failed to allocate 9.9M ({size} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY"
            for size in sizes
        )
    )
    assert message.judgement.verdict == "other_process"
    assert message.fields["requested_bytes"] == 100_000_000


@pytest.mark.parametrize("size", [0, 140_729_850_295_296])
def test_requests_of_zero_or_impossible_bytes_are_bugs(size):
    text = (
        f"tried to allocate {size} bytes"
        if not size
        else f"failed to allocate 127.99TiB ({size} bytes) from device: HIP_ERROR_OutOfMemory"
    )
    message = single(f"E tensorflow/core/common_runtime/x.cc:1] {text}")
    assert (message.judgement.verdict, message.judgement.confidence) == ("unknown", "high")
    assert message.backend == ("hip" if size else "cuda")


def test_a_tensor_on_the_cpu_is_host_memory():
    message = single(
        "OOM when allocating tensor with shape[8,9] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by "
        "allocator cpu"
    )
    assert (message.judgement.verdict, message.backend) == ("host", "cpu")


@pytest.mark.parametrize(("used", "verdict"), [(7_000_000_000, "fragmentation"), (7_990_000_000, "capacity")])
def test_the_printed_pool_statistics_decide_the_verdict(used, verdict):
    message = single(
        "W tensorflow/core/common_runtime/bfc_allocator.cc:431] Allocator (GPU_0_bfc) ran out of memory trying to "
        "allocate 200.00MiB (rounded to 209715200)requested by op a\nCurrent allocation summary follows.\nStats:\n"
        f"Limit: 8000000000\nInUse: {used}\nMaxInUse: {used}"
    )
    assert message.judgement.verdict == verdict
    assert message.fields["limit_bytes"] == 8_000_000_000


def test_a_context_that_does_not_fit_points_to_other_processes():
    message = single(
        "failed initializing StreamExecutor for CUDA device ordinal 2: Internal: failed call to "
        "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 8366784512"
    )
    assert message.judgement.verdict == "other_process"
    assert message.fields == {"device_index": 2, "total_bytes": 8366784512}


@pytest.mark.parametrize(("device", "backend"), [("DML", "directml"), ("XPU", "xpu"), ("GPU", "cuda")])
def test_pluggable_devices_decide_the_backend(device, backend):
    text = (
        "Resource exhausted: OOM when allocating tensor with shape[8,64] and type float on "
        f"/job:localhost/device:{device}:1 by allocator A"
    )
    message = single(text)
    assert (message.backend, message.fields["device_index"]) == (backend, 1)


def test_shapes_of_the_first_releases_are_read():
    message = single("OOM when allocating tensor with shapedim { size: 64 } dim { size: 256 }")
    assert message.fields["shape"] == [64, 256]


def test_pool_statistics_before_the_operator_error_are_read():
    message = single(
        "2021-03-04 05:06:07.000001: I tensorflow/core/common_runtime/bfc_allocator.cc:680] Stats: \n"
        "Limit:                 9000000000\n"
        "InUse:                  8000000000\nMaxInUse:               8100000000\nNumAllocs:                      77\n\n"
        "2021-03-04 05:06:07.000002: W tensorflow/core/common_runtime/bfc_allocator.cc:279] ****____****\n"
        "2021-03-04 05:06:07.000003: W tensorflow/core/framework/op_kernel.cc:1202] OP_REQUIRES failed at "
        "pad_op.cc:123 : Resource exhausted: OOM when allocating tensor with shape[500,1000,1000] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    )
    assert message.judgement.verdict == "capacity"
    assert (message.fields["limit_bytes"], message.fields["allocated_bytes"]) == (9_000_000_000, 8_000_000_000)


@pytest.mark.parametrize("device", ["DML", "GPU"])
def test_the_pool_of_cuda_is_for_cuda_only(device):
    text = (
        "ResourceExhaustedError: OOM when allocating tensor with shape[2,256,256,32] and type float on /job:localhost/"
        f"replica:0/task:0/device:{device}:0 by allocator {'DmlAllocator' if device == 'DML' else 'GPU_0_bfc'}"
    )
    assert ("cuda_malloc_async" in commands(text)) == (device == "GPU")
