"""Messages of MPS, HPU and cudaMallocAsync, which have their own wording, and requests of impossible size."""

from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form, integer, torch_size, whole_bytes
from tests.oom.single import commands, single

FORMS = [
    Form(
        "torch_mps",
        "RuntimeError: MPS backend out of memory (MPS allocated: {allocated}, other allocations: {other}, max "
        "allowed: {limit}). Tried to allocate "
        "{requested} on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory "
        "allocations (may cause system "
        "failure).",
        {
            "allocated": torch_size("allocated"),
            "other": torch_size("other_alloc"),
            "limit": torch_size("limit"),
            "requested": torch_size("requested"),
        },
    ),
    Form(
        "hpu",
        "RuntimeError: [Rank:{rank}] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::{requested} (224)MB",
        {"rank": integer("rank", 0, 63), "requested": whole_bytes("requested")},
    ),
    Form(
        "torch_cuda_mallocasync",
        "torch.cuda.OutOfMemoryError: Allocation on device {device} would exceed allowed memory. (out of "
        "memory)\nCurrently allocated     : "
        "{allocated}\nRequested               : {requested}\nDevice limit            : {total}\nFree (according "
        "to CUDA): {free}\nPyTorch limit "
        "(set by user-supplied memory fraction)\n                        : {limit}",
        {
            "device": integer("device_index", 0, 15),
            "allocated": torch_size("allocated"),
            "requested": torch_size("requested"),
            "total": torch_size("total"),
            "free": torch_size("free"),
            "limit": torch_size("limit"),
        },
    ),
    Form(
        "torch_cuda_mallocasync",
        "torch.OutOfMemoryError: Allocation on device {device}",
        {"device": integer("device_index", 0, 15)},
    ),
    Form(
        "torch_mps",
        "Error: command buffer exited with error status.\n\tThe work encoded on it may not have completed.\n\tError:\n"
        "\t(null)\n"
        "\tInsufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    ),
    Form("torch_eb", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory."),
]


def test_metal_limits_a_single_buffer():
    message = single("RuntimeError: Invalid buffer size: 24.00 GiB")
    assert (message.dialect, message.judgement.verdict) == ("torch_mps", "limit")
    assert message.fields == {"requested_bytes": 24 << 30}


def test_the_largest_possible_memory_limit_means_no_limit():
    text = (
        "Allocation on device would exceed allowed memory. (out of memory)\nRequested : 1.00 GiB\nPyTorch limit : "
        "17179869184.00 GiB"
    )
    assert single(text).fields == {"requested_bytes": 1 << 30}


@pytest.mark.parametrize("backend", ["CUDA", "HIP", "XPU", "NPU", "MUSA", "MLU"])
def test_a_request_of_an_exbibyte_is_not_a_lack_of_memory(backend):
    message = single(f"{backend} out of memory. Tried to allocate more than 1EB memory")
    assert (message.backend, message.fields, message.judgement.verdict) == (backend.lower(), {}, "unknown")


def test_the_single_line_printed_by_comfyui_is_read():
    text = (
        '!!! Exception during processing !!! Allocation on device\nTraceback (most recent call last):\n  File "a.py", '
        "line 1, in f\n"
    )
    message = single(text + "torch.OutOfMemoryError: Allocation on device\n\nGot an OOM, unloading all loaded models.")
    assert (message.dialect, message.fields, message.judgement.verdict) == ("torch_cuda_mallocasync", {}, "unknown")


@pytest.mark.parametrize("emphasis", ["", "**"])
def test_the_error_report_of_comfyui_is_read(emphasis):
    message = single(
        "# ComfyUI Error Report\n## Error Details\n- **Node Type:** ExampleSampler\n"
        f"- {emphasis}Exception Type:{emphasis} torch.OutOfMemoryError\n"
        f"- {emphasis}Exception Message:{emphasis} Allocation on device 1 \n## Stack Trace\n\n"
        '  File "/srv/ComfyUI/execution.py", line 7, in execute'
    )
    assert (message.dialect, message.fields) == ("torch_cuda_mallocasync", {"device_index": 1})
    assert message.findings[0].fixes[0].change == "--lowvram"


def test_the_error_report_of_comfyui_about_another_error_is_no_message():
    report = "- **Exception Type:** RuntimeError\n- **Exception Message:** Allocation on device cpu is not supported"
    assert not read_text(report).messages


def test_the_line_of_comfyui_after_a_message_is_not_a_second_message():
    hip = (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 12.00 "
        "GiB of which 1.00 GiB"
    )
    assert (
        single(f"{hip} is free.\n\nGot an OOM, unloading all loaded models.\nPrompt executed in 9.1 seconds").dialect
        == "torch_hip"
    )
    assert single("Got an OOM, unloading all loaded models.").dialect == "torch_cuda_mallocasync"


def test_a_too_large_metal_buffer_does_not_advise_a_higher_watermark():
    lines = commands("RuntimeError: Invalid buffer size: 20.00 GB")
    assert "WATERMARK" not in lines
    assert "attention_slicing" in lines


def test_a_reached_watermark_is_a_limit_even_if_the_request_is_cut_off():
    message = single(
        "MPS backend out of memory (MPS allocated: 20.50 GiB, other allocations: 60.25 GiB, max allowed: 81.60 GiB)."
    )
    assert (message.dialect, message.judgement.verdict) == ("torch_mps", "limit")
    assert "80.75 GiB of the 81.60 GiB" in message.judgement.reasons[0]


def test_metal_errors_of_other_programs_are_recognised():
    message = single('Error Domain=MTLCommandBufferErrorDomain Code=8 "Insufficient Memory (IOAF code 8)"')
    assert (message.dialect, message.judgement.verdict) == ("torch_mps", "unknown")


def test_a_date_after_the_device_is_not_its_index():
    message = single("torch.OutOfMemoryError: Allocation on device 2025-03-04T05:06:07.890 | the next line of the log")
    assert "device_index" not in message.fields


def test_the_workspace_of_a_graph_on_gaudi_has_its_size():
    message = single("RuntimeError: FATAL ERROR :: MODULE:SYNHELPER workspace Allocation of size ::5368709120 failed!")
    assert (message.dialect, message.backend, message.fields) == ("hpu", "hpu", {"requested_bytes": 5 << 30})
