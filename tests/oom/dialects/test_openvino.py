from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form, whole_bytes
from tests.oom.single import commands, single

_SIZES = {"requested": whole_bytes("requested", 1 << 38), "limit": whole_bytes("limit", 1 << 36)}
FORMS = [
    Form(
        "openvino",
        "[GPU] Exceeded max size of memory object allocation: requested {requested} bytes, but max alloc size "
        "supported by device is {limit} bytes.Please try to reduce batch size or use lower precision.",
        _SIZES,
    ),
    Form(
        "openvino",
        "Exceeded max size of memory object allocation: Requested {requested} bytes but max alloc size is "
        "{limit} bytes",
        _SIZES,
    ),
]


def test_a_buffer_above_the_limit_of_the_driver_is_no_lack_of_memory():
    text = (
        "RuntimeError: Exception from src/inference/src/cpp/core.cpp:7:\n[GPU] Exceeded max size of memory object "
        "allocation: requested 5368709120 bytes, but max alloc size supported by device is 4294959104 bytes."
    )
    assert single(text).judgement.verdict == "limit"
    assert "GPU_ENABLE_LARGE_ALLOCATIONS" in commands(text).splitlines()[0]


def test_a_size_that_no_device_has_is_a_wrong_shape():
    message = single(
        "[GPU] Exceeded max size of memory object allocation: requested 2305843009213693952 bytes, but max alloc size "
        "supported by device is 4294959104 bytes."
    )
    assert (message.fields, message.judgement.verdict, message.judgement.confidence) == ({}, "unknown", "high")


def test_the_whole_model_may_exceed_the_device():
    message = single(
        "[GPU] Exceeded max size of memory allocation: Required 9000000000 bytes, already occupied : 7000000000 bytes, "
        "but available memory size is 8000000000 bytes"
    )
    assert message.judgement.verdict == "capacity"
    assert message.fields == {
        "requested_bytes": 2000000000,
        "allocated_bytes": 7000000000,
        "total_bytes": 8000000000,
    }


def test_one_exception_about_resources_is_one_message():
    message = single(
        "[GPU] CL_OUT_OF_RESOURCES exception.\n\tDue to a driver bug any subsequent OpenCL API call will cause "
        "application hang, so GPU plugin can't finish correctly.\n\tPlease try to update the driver or reduce memory "
        "consumption (use smaller batch size, less streams, lower precision, etc)to avoid CL_OUT_OF_RESOURCES exception"
    )
    assert (message.dialect, message.judgement.confidence) == ("openvino", "low")


@pytest.mark.parametrize("text", ["CL_OUT_OF_RESOURCES is error -5 of OpenCL", "max alloc size is 4294959104 bytes"])
def test_facts_about_the_driver_are_no_message(text):
    assert not read_text(text).messages
