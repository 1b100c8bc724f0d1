from __future__ import annotations

from tests.oom.message_forms import Form, whole_bytes
from tests.oom.single import single

FORMS = [
    Form(
        "mlx",
        (
            "libc++abi: terminating due to uncaught exception of type std::runtime_error: [malloc_or_wait] Unable to "
            "allocate {requested} bytes."
        ),
        {"requested": whole_bytes("requested")},
    ),
    Form(
        "mlx",
        (
            "RuntimeError: [metal::malloc] Attempting to allocate {requested} bytes which is greater than the maximum "
            "allowed buffer size of {limit} bytes."
        ),
        {"requested": whole_bytes("requested"), "limit": whole_bytes("limit")},
    ),
]


def test_exceeding_the_largest_buffer_size_is_a_limit():
    text = (
        "[metal::malloc] Attempting to allocate 20000000000 bytes which is greater than the maximum allowed buffer "
        "size of 9534832640 bytes."
    )
    assert single(text).judgement.verdict == "limit"


def test_a_metal_error_with_the_mlx_prefix_is_of_mlx():
    text = (
        "[METAL] Command buffer execution failed: Insufficient Memory "
        "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
    )
    assert (single(text).dialect, single(text).backend) == ("mlx", "metal")


def test_exceeding_the_number_of_buffers_is_a_limit():
    message = single("RuntimeError: [metal::malloc] Resource limit (499000) exceeded.")
    assert (message.dialect, message.fields, message.judgement.verdict) == ("mlx", {}, "limit")
