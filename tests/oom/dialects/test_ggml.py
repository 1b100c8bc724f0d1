from __future__ import annotations

import pytest

from tests.oom.message_forms import MIB, Form, integer, unit_size, whole_bytes
from tests.oom.single import commands, single

FORMS = [
    Form(
        "ggml",
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating {size} on device {device}: cudaMalloc failed: out "
            "of memory"
        ),
        {"size": unit_size("requested", "{:.2f} MiB", MIB), "device": integer("device_index", 0, 15)},
    ),
    Form(
        "ggml",
        (
            "ggml_gallocr_reserve_n: failed to allocate CUDA{device} buffer of size {requested}\n"
            "llama_new_context_with_model: failed to allocate compute buffers"
        ),
        {"requested": whole_bytes("requested", 1 << 40), "device": integer("device_index", 0, 15)},
    ),
    Form(
        "ggml",
        "ggml_cuda_host_malloc: failed to allocate {size} of pinned memory: out of memory",
        {"size": unit_size("requested", "{:.2f} MiB", MIB, 1 << 36)},
    ),
    Form(
        "ggml",
        (
            "ggml_vulkan: Device memory allocation of size {requested} failed.\nggml_vulkan: "
            "vk::Device::allocateMemory: ErrorOutOfDeviceMemory"
        ),
        {"requested": whole_bytes("requested", 1 << 40)},
    ),
    Form(
        "ggml",
        "ggml_new_object: not enough space in the context's memory pool (needed {needed}, available {free})",
        {"needed": whole_bytes("requested"), "free": whole_bytes("free")},
    ),
    Form(
        "ggml",
        "llama_model_load: error loading model: unable to allocate CUDA{device} buffer",
        {"device": integer("device_index", 0, 9)},
    ),
]


def test_three_lines_about_a_buffer_are_one_message_with_the_exact_size():
    message = single(
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 12345.68 MiB on device 1: cudaMalloc failed: out of "
        "memory\n"
        "alloc_tensor_range: failed to allocate CUDA1 buffer of size 12945382212\n"
        "llama_model_load: error loading model: unable to allocate CUDA1 buffer"
    )
    assert message.fields == {"requested_bytes": 12945382212, "device_index": 1}
    assert (message.framework, message.judgement.verdict) == ("llama.cpp", "capacity")


def test_a_repeated_failure_is_counted_and_function_names_are_not_speakers():
    tried = (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 1: cudaMalloc failed: out of "
        "memory\n"
        "ggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 2147485696\n"
        "graph_reserve: failed to allocate compute buffers\n"
        "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers\n"
    )
    message = single(tried + tried)
    assert (message.count, message.line) == (2, 1)
    assert message.fields == {"requested_bytes": 2147485696, "device_index": 1}


@pytest.mark.parametrize(
    ("text", "backend", "verdict"),
    [
        ("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 4294967296", "cpu", "host"),
        ("alloc_tensor_range: failed to allocate ROCm0 buffer of size 4294967296", "hip", "capacity"),
        ("alloc_tensor_range: failed to allocate CUDA_Host buffer of size 4294967296", "cpu", "host"),
        (
            "ggml_vulkan: Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory",
            "vulkan",
            "limit",
        ),
        (
            (
                "ggml_metal_synchronize: error: command buffer 0 failed with status 5\nerror: Insufficient Memory "
                "(00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
            ),
            "metal",
            "unknown",
        ),
        ("ggml_aligned_malloc: insufficient memory (attempted to allocate 1024.00 MB)", "cpu", "host"),
    ],
)
def test_backend_and_verdict_of_each_wording(text, backend, verdict):
    message = single(text)
    assert (message.backend, message.judgement.verdict) == (backend, verdict)


def test_a_pinned_memory_failure_is_a_host_warning_in_any_locale():
    message = single("ggml_cuda_host_malloc: failed to allocate 512,50 MiB of pinned memory: invalid argument")
    assert message.fields["requested_bytes"] == round(512.5 * MIB)
    assert (message.judgement.verdict, message.is_warning) == ("host", True)


def test_ollama_is_the_framework_if_the_text_names_it():
    assert (
        single("Error: llama runner process has terminated: cudaMalloc failed: out of memory\nollama").framework
        == "ollama"
    )


def test_a_too_large_vulkan_buffer_advises_a_smaller_block_size():
    message = single(
        "ggml_vulkan: Requested buffer size (6000000000) exceeds device memory allocation limit (4294967296)"
    )
    assert (message.backend, message.judgement.verdict) == ("vulkan", "limit")
    assert "GGML_VK_FORCE_MAX_ALLOCATION_SIZE" in message.findings[0].fixes[0].change


_REFUSED = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 1: cudaMalloc failed: out of memory\n"
    "ggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 9437184000\ngraph_reserve: failed to allocate "
    "compute buffers\n"
)


def test_a_retry_without_pipeline_parallelism_is_a_warning():
    message = single(
        _REFUSED + "llama_context: compute buffer allocation failed, retrying without pipeline parallelism\nmain: ready"
    )
    assert message.is_warning
    assert "tries again" in message.judgement.reasons[1]


def test_a_retry_that_fails_as_well_is_a_failure():
    retried = _REFUSED + "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
    message = single(retried + _REFUSED.replace("9000.00", "7000.00").replace("9437184000", "7340032000"))
    assert (message.is_warning, message.fields["requested_bytes"]) == (False, 7340032000)


@pytest.mark.parametrize(
    ("line", "first"),
    [
        (_REFUSED, "-ub"),
        (_REFUSED.partition("graph_reserve")[0], "-ub"),
        ("llama_context: pipeline parallelism enabled (n_copies=4)\n" + _REFUSED, "GGML_SCHED_MAX_COPIES"),
        ("llama_kv_cache_init: failed to allocate buffer for kv cache", "-c "),
        ("llama_model_load: error loading model: unable to allocate CUDA0 buffer", "-ngl"),
    ],
)
def test_the_first_remedy_shrinks_the_buffer_that_failed(line, first):
    assert first in single(line).findings[0].fixes[0].change


def test_an_old_metal_buffer_has_a_name():
    message = single("ggml_metal_add_buffer: error: failed to allocate 'data            ' buffer, size = 19283.21 MiB")
    assert (message.dialect, message.backend, message.judgement.verdict) == ("ggml", "metal", "capacity")
    assert message.fields["requested_bytes"] == round(19283.21 * 2**20)


@pytest.mark.parametrize(
    ("text", "framework", "advised"),
    [
        (
            (
                "whisper_init_state:\nggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 123456789\n"
                "whisper_init_state: failed to init compute buffer"
            ),
            "whisper.cpp",
            "-m models/ggml-medium",
        ),
        (
            (
                "[ERROR] ggml_extend.hpp:7    - ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9876.50 MiB on "
                "device 0: cudaMalloc failed: out of memory\n"
                "[ERROR] ggml_extend.hpp:7    - vae alloc runtime params backend buffer failed, num_tensors 7"
            ),
            "stable-diffusion.cpp",
            "--vae-tiling",
        ),
        (
            (
                "[DEBUG] ggml_extend.hpp:9 - vae compute buffer size: 5000.00 MB(VRAM)\n"
                "ggml_vulkan: Requested buffer size exceeds device memory allocation limit: ErrorOutOfDeviceMemory"
            ),
            "stable-diffusion.cpp",
            "GGML_VK_FORCE_MAX",
        ),
    ],
)
def test_programs_other_than_llama_get_their_own_options(text, framework, advised):
    assert single(text).framework == framework
    lines = commands(text)
    assert advised in lines.splitlines()[0]
    assert not {"-ngl 20", "-c 4096", "-b 512 -ub 128"} & set(lines.splitlines())


@pytest.mark.parametrize(("name", "backend"), [("CUDA", "cuda"), ("ROCm", "hip")])
def test_the_error_of_the_driver_names_the_backend_of_the_build(name, backend):
    message = single(
        f"{name} error: out of memory\n  current device: 1, in function alloc at /x/ggml/src/ggml-cuda/ggml-cuda.cu:7\n"
        "  cuMemCreate(&handle, reserve_size, &prop, 0)"
    )
    assert (message.dialect, message.backend, message.fields) == ("ggml", backend, {"device_index": 1})


def test_pinned_memory_that_vulkan_refuses_is_a_warning():
    message = single(
        "ggml_vulkan: Failed to allocate pinned memory (Requested buffer size exceeds device buffer size limit: "
        "ErrorOutOfDeviceMemory)"
    )
    assert message.is_warning
    assert (message.backend, message.judgement.verdict) == ("vulkan", "host")
    assert "DataLoader" not in commands(message.text)


def test_without_host_memory_work_does_not_move_to_the_host():
    lines = commands(
        "whisper_model_load: loading\nggml_aligned_malloc: insufficient memory (attempted to allocate 900 MB)"
    )
    assert lines.startswith("-m models/ggml-medium")
    assert "--no-gpu" not in lines
