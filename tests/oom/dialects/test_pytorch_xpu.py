from __future__ import annotations

import pytest
from message_forms import Form, integer, torch_size
from single import single

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
        "RuntimeError: Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES) -5 (PI_ERROR_OUT_OF_RESOURCES)",
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
def test_the_driver_refuses_by_itself(text, cause):
    message = single(text)
    assert (message.dialect, message.judgement.verdict) == ("torch_xpu", cause)
