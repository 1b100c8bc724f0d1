from __future__ import annotations

import pytest

from tests.oom.message_forms import MIB, Form, integer, unit_size, whole_bytes
from tests.oom.single import commands, single

_BYTES = whole_bytes("requested", 1 << 44, least=1)
FORMS = [
    Form(
        "mindspore_pool",
        "Out of Memory!!! Request memory size: {requested}B, Memory Statistic:\nDevice HBM memory size: {total}\n"
        "MindSpore Used memory size: {limit}\nMindSpore memory base address: 0x124140000000\nTotal Static Memory size: "
        "{static}\nTotal Dynamic memory size: 0M",
        {
            "requested": whole_bytes("requested"),
            "total": unit_size("total", "{:.0f}M", MIB),
            "limit": unit_size("limit", "{:.0f}M", MIB),
            "static": unit_size("static", "{:.0f}M", MIB),
        },
    ),
    Form(
        "mindspore_malloc",
        "Malloc device memory failed, free memory size is less than half of total memory size.Device {device} "
        "Device MOC total size:{total} Device "
        "MOC free size:{free} may be other processes occupying this card, check as: ps -ef|grep python",
        {"device": integer("device_index", 0, 15), "total": whole_bytes("total"), "free": whole_bytes("free")},
    ),
    Form(
        "mindspore_misc",
        "TotalUsedMemStatistics : {allocated} plus TotalUsedByEventMemStatistics : 0 and plus alloc size : "
        "{requested} is more than total mem "
        "size : {limit}.",
        {"allocated": whole_bytes("allocated"), "requested": _BYTES, "limit": whole_bytes("limit")},
    ),
    Form(
        "mindspore_misc",
        "Memory not enough: current free memory size[{free}] is smaller than required "
        "size[{requested}B]\nDevice(id:{device}) memory isn't enough "
        "and alloc failed",
        {"free": whole_bytes("free"), "requested": _BYTES, "device": integer("device_index", 0, 15)},
    ),
    Form(
        "mindspore_misc",
        "RuntimeError: Malloc for kernel workspace failed, Memory isn't enough, node:Default/Conv2D-op3",
    ),
    Form(
        "mindspore_misc",
        "[ERROR] device/ascend/ascend_memory_pool.cc:65 CalMemBlockAllocSize] Memory not enough: current free memory "
        "size[{free}] is smaller than required size[{requested}], dynamic offset [4096] memory pool total "
        "size[{limit}]",
        {"free": whole_bytes("free"), "requested": _BYTES, "limit": whole_bytes("limit")},
    ),
]


def _pool(requested, used, device=32768):
    sizes = f"Device HBM memory size: {device}M\nMindSpore Used memory size: {used}M"
    return f"Out of Memory!!! Request memory size: {requested}B, Memory Statistic:\n{sizes}"


def test_a_small_pool_on_a_large_card_is_a_limit():
    assert single(_pool(2 << 30, 1024)).judgement.verdict == "limit"
    assert 'max_device_memory="30GB"' in commands(_pool(2 << 30, 1024))


def test_a_pool_as_large_as_the_card_is_full():
    assert single(_pool(31 << 30, 30684)).judgement.verdict == "capacity"


@pytest.mark.parametrize(
    "text",
    [
        "Malloc device memory failed, less than half.Device HBM total size:34359738368 Device HBM free size:2140602368",
        (
            "Malloc device memory failed, size[32212254720], ret[207001], Device 6 may be other processes occupying "
            "this card"
        ),
    ],
)
def test_memory_missing_at_the_start_belongs_to_other_processes(text):
    message = single(text)
    assert (message.dialect, message.judgement.verdict) == ("mindspore_malloc", "other_process")


def test_the_process_is_read_from_the_log_and_a_size_of_zero_is_ignored():
    text = (
        "[ERROR] PRE_ACT(4711,ffff12345678,python):2024-10-09-14:12:37 [x.cc:4] Add] AllocDeviceMemByEagerFree failed, "
        "alloc size : 0."
    )
    assert single(text).fields == {"pid": 4711}
    assert single(text).judgement.verdict == "unknown"


def test_a_failed_cuda_host_alloc_is_host_memory():
    assert single("Init] cudaHostAlloc failed, ret[2], out of memory").judgement.verdict == "host"


def test_a_driver_failure_outside_the_pool_has_an_unknown_cause():
    text = "Cuda error:\nThe cudaStreamCreateWithFlags failed, ret[2], out of memory"
    message = single(text)
    assert (message.dialect, message.backend, message.judgement.verdict) == ("mindspore_misc", "cuda", "unknown")
    assert "max_device_memory" in commands(text)


def test_fragmentation_of_the_pool_is_reported():
    message = single(
        "Out of Memory!!! Request memory size: 2147483648B, Memory Statistic:\nDevice HBM memory size: 65536M\n"
        "MindSpore Used memory size: 59000M\nUsed peak memory usage (without fragments): 57000M\n"
        "Actual peak memory usage (with fragments): 59000M"
    )
    assert "1.95 GiB of that was fragmented" in message.judgement.reasons[1]
    assert message.judgement.alternatives == ("fragmentation", "limit")
    assert "90%" in message.judgement.reasons[0]
    assert any("max_device_memory" in fix.change for fix in message.findings[0].fixes)


def test_the_source_file_distinguishes_the_pools_of_ascend_and_gpu():
    text = "Memory not enough: current free memory size[1024] is smaller than required size[4096]"
    assert single(text).backend == "cuda"
    assert single("device/ascend/ascend_memory_pool.cc:9] " + text).backend == "npu"
