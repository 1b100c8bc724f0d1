from __future__ import annotations

import pytest

from tests.oom.message_forms import Form, integer, torch_size
from tests.oom.single import commands, single

_BASE = {
    "requested": torch_size("requested"),
    "device": integer("device_index", 0, 15),
    "total": torch_size("total"),
    "allocated": torch_size("allocated"),
}
FORMS = [
    Form(
        "torch_xpu",
        "RuntimeError: XPU out of memory. Tried to allocate {requested} (GPU {device}; {total} total capacity; "
        "{allocated} already allocated; "
        "{reserved} reserved in total by PyTorch)",
        {**_BASE, "reserved": torch_size("reserved")},
    ),
    Form(
        "torch_xpu",
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate {requested}. GPU {device} has a total "
        "capacity of {total} of which {free} is "
        "free. Of the allocated memory {allocated} is allocated by PyTorch, and {unallocated} is reserved by "
        "PyTorch but unallocated. Please use "
        "`empty_cache` to release all unoccupied cached memory.",
        {**_BASE, "free": torch_size("free"), "unallocated": torch_size("unallocated")},
    ),
    Form(
        "torch_xpu",
        (
            "RuntimeError: Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES) -5 "
            "(PI_ERROR_OUT_OF_RESOURCES)"
        ),
    ),
]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", "unknown"),
        ("RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)", "unknown"),
        ("RuntimeError: Native API failed. Native API returns: -6 (PI_ERROR_OUT_OF_HOST_MEMORY)", "host"),
    ],
)
def test_driver_errors_are_recognised(text, cause):
    message = single(text)
    assert (message.dialect, message.judgement.verdict) == ("torch_xpu", cause)


def test_driver_codes_in_other_brackets_are_recognised():
    for text in (
        "level_zero backend failed with error: 39 [UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY]",
        (
            "CHIP error [TID 4711] : hipErrorNotReady (ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ) in "
            "/src/Level0/Backend.cc:31:wait"
        ),
    ):
        assert (single(text).dialect, single(text).judgement.verdict) == ("torch_xpu", "unknown")


def test_driver_errors_advise_relaxed_allocation_limits():
    assert "RELAXED_ALLOCATION_LIMITS" in commands(
        "RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"
    )


def test_the_framework_is_pytorch_only_if_it_raised_the_error():
    text = "{}level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"
    assert single(text.format("RuntimeError: ")).framework == "pytorch"
    assert single(text.format("")).framework == "level_zero"


def test_the_4_gb_block_limit_of_the_extension_is_recognised():
    message = single(
        "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate "
        "7.25 GiB (GPU  1; 11.80 GiB total capacity; 96.00 MiB already allocated; 128.00 MiB reserved in total by "
        "PyTorch)"
    )
    assert (message.dialect, message.backend, message.judgement.verdict) == ("torch_xpu", "xpu", "limit")
    assert message.fields == {
        "requested_bytes": round(7.25 * (1 << 30)),
        "device_index": 1,
        "total_bytes": round(11.80 * (1 << 30)),
        "allocated_bytes": 96 << 20,
        "reserved_bytes": 128 << 20,
    }
