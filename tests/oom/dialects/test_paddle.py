from __future__ import annotations

import pytest

from tests.oom.message_forms import GIB, MIB, Form, integer, unit_size, whole_bytes
from tests.oom.single import commands, single

_SIZES = {
    "device": integer("device_index", 0, 15),
    "requested": unit_size("requested", "{:.6f}GB", GIB),
    "free": unit_size("free", "{:.6f}MB", MIB),
}
FORMS = [
    Form(
        "paddle",
        "Out of memory error on GPU {device}. Cannot allocate {requested} memory on GPU {device}, available memory is "
        "only {free}.\n\n"
        "Please check whether there is any other process using GPU {device}.",
        _SIZES,
    ),
    Form(
        "paddle",
        "ResourceExhaustedError: \n\nOut of memory error on GPU {device}. Cannot allocate {requested} memory on GPU "
        "{device}, {allocated} memory has been allocated and available memory is only {free}.\n\nPlease check whether "
        "there is any other process using GPU {device}.",
        {**_SIZES, "allocated": unit_size("allocated", "{:.6f}GB", GIB)},
    ),
    Form(
        "paddle",
        "Out of memory error on GPU {device}. Cannot allocate {requested} GPU memory, available memory is {free}.",
        _SIZES,
    ),
    Form(
        "paddle",
        (
            "paddle.fluid.core.EnforceNotMet: enforce allocating <= available failed, {requested} > {free}\nat "
            "[/paddle/gpu_info.cc:89]"
        ),
        {"requested": whole_bytes("requested"), "free": whole_bytes("free")},
    ),
    Form(
        "paddle",
        "PaddleCheckError: Expected allocating <= available, but received allocating:{requested} > available:{free}.",
        {"requested": whole_bytes("requested"), "free": whole_bytes("free")},
    ),
    Form(
        "paddle",
        "ResourceExhaustedError: Fail to alloc memory of {requested} size, error code is 12.",
        {"requested": whole_bytes("requested")},
    ),
]


def test_the_advised_memory_fraction_is_computed():
    text = "enforce allocating <= available failed, 10000000000 > 5000000000"
    assert single(text).judgement.verdict == "limit"
    assert "FLAGS_fraction_of_gpu_memory_to_use=0.43" in commands(text)
    assert "FLAGS_allocator_strategy=auto_growth" in commands(text)


@pytest.mark.parametrize(("place", "backend"), [("XPU", "xpu"), ("NPU", "npu"), ("DCU", "hip"), ("GPU", "cuda")])
def test_the_device_name_decides_the_backend(place, backend):
    text = (
        f"Out of memory error on {place} 3. Cannot allocate 2.000000GB memory on {place} 3, available memory is only "
        "1.000000GB."
    )
    assert (single(text).backend, single(text).fields["device_index"]) == (backend, 3)


def test_little_allocated_and_little_free_points_to_other_processes():
    text = (
        "Out of memory error on GPU 0. Cannot allocate 100.000000MB memory on GPU 0, 300.000000MB memory has been "
        "allocated and available memory is only 20.000000MB."
    )
    assert single(text).judgement.verdict == "other_process"


_EXPECTED = (
    "Expected posix_memalign(&p, alignment, size) == 0, but received posix_memalign(&p, alignment, size):12 != 0:0."
)


@pytest.mark.parametrize(
    ("text", "requested"),
    [
        (
            f"EnforceNotMet: Enforce failed. {_EXPECTED}\nAlloc 2400003072 error! at [/p/system_allocator.cc:50]",
            2400003072,
        ),
        (
            f"Error: Alloc 262144000 error!\n  [Hint: {_EXPECTED}] at (/p/system_allocator.cc:58)",
            262144000,
        ),
        (
            "F0203 04:05:06.789012 77 Allocator.h:55] Check failed: posix_memalign(&ptr, 32ul, size) == 0 (12 vs. 0)",
            None,
        ),
        ("ResourceExhaustedError: Fail to alloc memory of 3221225472 size.", 3221225472),
    ],
)
def test_every_wording_of_a_host_memory_failure_is_recognised(text, requested):
    message = single(text)
    assert (message.framework, message.judgement.verdict, message.fields.get("requested_bytes")) == (
        "paddle",
        "host",
        requested,
    )


def test_without_its_own_use_a_process_looks_for_others_first():
    text = (
        "Out of memory error on GPU 1. Cannot allocate 2.50GB memory on GPU 1, available memory is only 100.250000MB."
    )
    assert single(text).judgement.verdict == "capacity"
    assert commands(text).startswith("nvidia-smi")
