from __future__ import annotations

import pytest

from tests.oom.message_forms import Form, whole_bytes
from tests.oom.single import commands, single

FORMS = [
    Form(
        "tensorrt",
        (
            "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory (Requested size was "
            "{requested} bytes.)"
        ),
        {"requested": whole_bytes("requested", 1 << 40)},
    ),
    Form(
        "tensorrt",
        (
            "[TRT] Requested amount of GPU memory ({requested} bytes) could not be allocated. There may not be enough "
            "free memory for allocation to succeed."
        ),
        {"requested": whole_bytes("requested", 1 << 40)},
    ),
    Form(
        "tensorrt", "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, pool, stream): out of memory"
    ),
]


def test_lines_about_a_tactic_are_one_message():
    text = (
        "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory (no further "
        "information)\n"
        "[TRT] [W] Requested amount of GPU memory (2147483648 bytes) could not be allocated.\n"
        "[TRT] [W] Skipping tactic 3 due to insufficient memory on requested size of 2147483648 detected for tactic "
        "0x04.\n"
    )
    message = single(text)
    assert message.fields == {"requested_bytes": 2147483648}
    assert message.judgement.verdict == "workspace_or_comm"
    assert "WORKSPACE, 1024 << 20" in commands(text)


def test_an_allocation_failure_of_the_runtime_is_capacity():
    assert (
        single("[E] [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)").judgement.verdict
        == "capacity"
    )


def test_requested_and_available_sizes_of_a_tactic_are_read():
    message = single("Tactic Device request: 4112MB Available: 1024MB. Device memory is insufficient to use tactic.")
    assert message.fields == {"requested_bytes": 4112 << 20, "free_bytes": 1024 << 20}


def test_function_names_with_namespaces_are_read():
    message = single(
        "[E] [TRT] C:\\src\\safeRuntime.cpp (31) - Cuda Error in nvinfer1::internal::DefaultAllocator::allocate: 2 "
        "(out of memory)\n"
        "[W] [TRT] GPU memory allocation error during getBestTactic: conv3_fwd\n"
        "[E] [TRT] C:\\src\\builder.cpp (77) - OutOfMemory Error in "
        "nvinfer1::builder::`anonymous-namespace'::Node::computeCosts: 0\n"
    )
    assert message.judgement.verdict == "workspace_or_comm"


@pytest.mark.parametrize(
    "line",
    [
        "[TensorRT] WARNING: Requested amount of memory (1342177280 bytes) could not be allocated",
        "[TRT] [W] Skipping tactic 2 due to Out of memory error on requested size of 1342177280 detected for tactic 4.",
        "[TRT] [W] Skipping tactic 2 due to oom error on requested size of 1342177280 detected for tactic 4.",
    ],
)
def test_sizes_are_read_from_messages_of_older_releases(line):
    assert single(line).fields == {"requested_bytes": 1342177280}
