from __future__ import annotations

import pytest

from tests.oom.message_forms import GIB, MIB, Form, unit_size
from tests.oom.single import single

FORMS = [
    Form(
        "xla_tpu",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
        "Used {used} of {total} hbm. Exceeded hbm capacity by 6.47G.\n\nTotal hbm usage >= 22.47G:\n    "
        "reserved        530.00M",
        {"used": unit_size("requested", "{:.2f}G", GIB), "total": unit_size("total", "{:.2f}G", GIB)},
    ),
    Form(
        "xla_tpu",
        (
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate {requested}. That was not "
            "possible. There are {free} free.; (0x0x0_HBM0)"
        ),
        {"requested": unit_size("requested", "{:.2f}G", GIB), "free": unit_size("free", "{:.2f}G", GIB)},
    ),
    Form(
        "xla_tpu",
        "Ran out of memory in memory space vmem while allocating on stack for %fusion = bf16[8,128]. "
        "Scoped allocation with size {requested} and limit {limit} exceeded scoped vmem limit by 3.69M.",
        {
            "requested": unit_size("requested", "{:.2f}M", MIB, 1 << 30),
            "limit": unit_size("limit", "{:.2f}M", MIB, 1 << 30),
        },
    ),
]


@pytest.mark.parametrize(("space", "verdict"), [("hbm", "capacity"), ("vmem", "limit"), ("smem", "limit")])
def test_vmem_and_smem_are_a_limit_and_hbm_is_capacity(space, verdict):
    assert (
        single(f"Ran out of memory in memory space {space}. Used 20.00M of 16.00M {space}.").judgement.verdict
        == verdict
    )


def test_more_free_than_requested_is_fragmentation():
    message = single(
        "Attempting to reserve 3.00G at the bottom of memory. That was not possible. There are 4.00G free, 0B "
        "reserved, and 2.00G reservable."
    )
    assert message.judgement.verdict == "fragmentation"


def test_a_truncated_message_is_recognised():
    message = single("RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm")
    assert (message.dialect, message.fields) == ("xla_tpu", {})


def test_the_compilers_breakdown_is_reported_and_its_total_is_not_one_request():
    message = single(
        "Ran out of memory in memory space hbm. Used 20.00G of 15.50G hbm. Exceeded hbm capacity by 4.50G.\n\n"
        "Total hbm usage >= 20.50G:\n    reserved        512.00M\n    program          12.00G\n    arguments         "
        "8.00G"
    )
    assert "512.00 MiB reserved, 12.00 GiB program, 8.00 GiB arguments" in message.judgement.reasons[1]
    assert message.findings[0].title == "The program needs 20.00 GiB; the device has 15.50 GiB"
    assert message.ledger == ()


def test_fragmentation_is_described_by_the_free_memory_if_only_that_is_printed():
    message = single("Attempting to allocate 600.00M. That was not possible. There are 2.00G free.; (0x0x0_HBM0)")
    assert message.findings[0].title == "2.00 GiB is free, but no free block is as large as 600.00 MiB"


def test_the_memory_breakdown_of_the_runtime_is_read():
    message = single(
        "Attempting to reserve 2.50G at the bottom of memory. That was not possible. There are 1.25G free, 0B "
        "reserved, and 1.25G reservable.; \n"
        "HBM capacity 16.00G:\n       Top-of-Memory reserved:  512.00M (     536,870,912 bytes)\n"
        "          Currently allocated:   14.25G (  15,300,820,992 bytes)\n          Program requirement:    2.50G (   "
        "2,684,354,560 bytes)"
    )
    sizes = {"requested": 5 << 29, "free": 5 << 28, "total": 16 << 30, "allocated": 15_300_820_992}
    assert message.fields == {f"{name}_bytes": size for name, size in sizes.items()}


@pytest.mark.parametrize(
    "text",
    [
        "Mosaic failed to compile TPU kernel: Insufficient scoped vmem: 40.50M > 32M",
        "Mosaic scoped allocation with size 42467328 bytes exceeds the scoped vmem limit of 33554432 bytes",
    ],
)
def test_scoped_memory_limits_of_kernels_are_read(text):
    message = single(text)
    assert (message.dialect, message.judgement.verdict) == ("xla_tpu", "limit")
    assert message.fields == {"requested_bytes": 81 << 19, "limit_bytes": 32 << 20}
