from __future__ import annotations

from memdiag.oom.read import read_text
from tests.oom.message_forms import GIB, Form, integer, unit_size, whole_bytes
from tests.oom.single import single

FORMS = [
    Form(
        "jax_xla",
        (
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
            "{requested} bytes."
        ),
        {"requested": whole_bytes("requested", 1 << 40)},
    ),
    Form(
        "jax_xla",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {requested}.",
        {"requested": unit_size("requested", "{:.2f}GiB", GIB, 1 << 40)},
    ),
    Form(
        "jax_xla",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {requested} "
        "bytes.\n"
        "BufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:    6.00MiB\n"
        "                 total allocation:   {program}\n              total fragmentation:         0B (0.00%)",
        {"requested": whole_bytes("requested", 1 << 40), "program": unit_size("program", "{:.2f}GiB", GIB, 1 << 40)},
    ),
    Form(
        "jax_xla",
        "Resource exhausted: Failed to allocate request for 2.98GiB ({requested}B) on device ordinal {device}",
        {"requested": whole_bytes("requested", 1 << 40), "device": integer("device_index", 0, 15)},
    ),
    Form(
        "jax_xla",
        "INTERNAL: Failed to allocate {requested} bytes for new constant",
        {"requested": whole_bytes("requested", 1 << 40)},
    ),
    Form(
        "jax_xla", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    ),
]


def test_a_small_request_of_a_small_program_is_not_judged_as_capacity():
    text = (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4194304 bytes.\ntotal "
        "allocation:   8.00MiB"
    )
    message = single(text)
    assert message.judgement.verdict == "unknown"
    assert "other_process" in message.judgement.alternatives


def test_a_failed_allocation_of_a_few_bytes_is_not_a_lack_of_memory():
    message = single("RuntimeError: Resource exhausted: Out of memory while trying to allocate 16 bytes.")
    assert (message.judgement.verdict, message.judgement.confidence, message.backend) == ("unknown", "high", "cpu")


def test_allocator_and_exception_are_one_failure_with_the_exact_size():
    message = single(
        "W external/xla/xla/tsl/framework/bfc_allocator.cc:497] Allocator (GPU_1_bfc) ran out of memory trying to "
        "allocate 29.80GiB (rounded to 32000000000)requested by op\n"
        "E external/xla/xla/pjrt/pjrt_stream_executor_client.cc:3086] Execution of replica 0 failed: "
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 32000000000 bytes."
    )
    assert message.fields == {"requested_bytes": 32000000000, "device_index": 1}
    assert message.judgement.verdict == "capacity"


def test_xla_on_a_cpu_is_host_memory():
    message = single(
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 80000000000 bytes."
    )
    assert (message.dialect, message.backend, message.judgement.verdict) == ("jax_xla", "cpu", "host")
    assert message.fields == {"requested_bytes": 80000000000}


def test_autotuning_scratch_memory_is_a_workspace_failure():
    message = single(
        "E external/org_tensorflow/tensorflow/compiler/xla/service/gpu/cudnn_conv_algorithm_picker.cc:555] Resource "
        "exhausted: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0"
    )
    assert message.judgement.verdict == "workspace_or_comm"


def test_warnings_are_omitted_if_there_is_a_failure():
    report = read_text(
        "W external/xla/xla/tsl/framework/bfc_allocator.cc:310] Allocator (GPU_0_bfc) ran out of memory trying to "
        "allocate 9.00GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean "
        "that there could be performance gains\n"
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5000000000 "
        "bytes."
    )
    assert [message.fields["requested_bytes"] for message in report.messages] == [5000000000]
    assert report.num_warnings_omitted == 1
