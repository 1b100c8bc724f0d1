from __future__ import annotations

import pytest
from hypothesis import strategies as st

from memdiag.oom.read import read_text
from tests.oom.message_forms import GIB, Form, Slot, unit_size, whole_bytes
from tests.oom.single import single


def _commas(name):
    return Slot(f"{name}_bytes", st.integers(0, 1 << 44), lambda value: f"{value:,}")


FORMS = [
    Form(
        "cupy",
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating {requested} bytes (allocated so far: "
            "{allocated} bytes)."
        ),
        {"requested": _commas("requested"), "allocated": _commas("allocated")},
    ),
    Form(
        "cupy",
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating {requested} bytes (allocated so far: "
            "{allocated} bytes, limit set to: {limit} bytes)."
        ),
        {"requested": _commas("requested"), "allocated": _commas("allocated"), "limit": _commas("limit")},
    ),
    Form(
        "cupy",
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate {requested} bytes) at: "
        "/x/rmm/mr/device/cuda_memory_resource.hpp:60: cudaErrorMemoryAllocation out of memory",
        {"requested": whole_bytes("requested")},
    ),
    Form(
        "cupy",
        "bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: {free}\n- Requested memory: {requested}",
        {"free": unit_size("free", "{:.1f}GB", GIB), "requested": unit_size("requested", "{:.1f}GB", GIB)},
    ),
]


def test_the_total_of_old_messages_includes_the_request():
    message = single(
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1000000000 bytes (total 5000000000 bytes)"
    )
    assert message.fields == {"requested_bytes": 1000000000, "allocated_bytes": 4000000000}
    assert message.judgement.verdict == "capacity"


def test_a_limit_that_is_exceeded_is_the_cause():
    text = (
        "Out of memory allocating 2,000,000,000 bytes (allocated so far: 3,000,000,000 bytes, limit set to: "
        "4,000,000,000 bytes)."
    )
    assert single(text).judgement.verdict == "limit"


def test_a_failure_with_little_allocated_points_to_other_processes():
    assert (
        single("Out of memory allocating 2,000,000 bytes (allocated so far: 3,000,000 bytes).").judgement.verdict
        == "other_process"
    )


def test_bad_alloc_of_rmm_is_not_host_memory():
    text = (
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /x/cuda_memory_resource.hpp:70: "
        "cudaErrorMemoryAllocation out of memory"
    )
    assert [message.framework for message in read_text(text).messages] == ["rapids"]


def test_rmm_wording_of_xgboost_is_recognised():
    text = (
        "xgboost.core.XGBoostError: a.cu:7: Memory allocation error on worker 0: bad_alloc: cudaErrorMemoryAllocation: "
        "out of memory"
    )
    assert single(text).framework == "xgboost"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /e/rmm/cuda_memory_resource.hpp", "capacity"),
        (
            (
                "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/e/rmm/pool_memory_resource.hpp:250: "
                "Maximum pool"
            ),
            "limit",
        ),
        (
            (
                "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 4294967296 bytes) at: "
                "/env/include/rmm"
            ),
            "capacity",
        ),
        ("RMMError: RMM_ERROR_OUT_OF_MEMORY", "capacity"),
    ],
)
def test_truncated_rmm_lines_are_read(text, verdict):
    message = single(text)
    assert (message.framework, message.judgement.verdict) == ("rapids", verdict)


def test_a_larger_pool_is_the_first_remedy_for_a_full_pool():
    text = (
        "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/e/rmm/pool_memory_resource.hpp:188: Maximum pool "
        "size exceeded"
    )
    assert "maximum_pool_size" in single(text).findings[0].fixes[0].change


@pytest.mark.parametrize(
    ("free", "requested", "verdict", "sizes"),
    [
        ("1500000000", "4000000000", "capacity", (1500000000, 4000000000)),
        ("4000000000", "48000", "unknown", (4000000000, 48000)),
        ("1.5GB", "4GB", "capacity", (3 << 29, 4 << 30)),
    ],
)
def test_xgboost_prints_the_free_and_the_requested_memory(free, requested, verdict, sizes):
    message = single(
        "xgboost.core.XGBoostError: [01:02:03] ../src/common/device_helpers.cuh:7: Memory allocation error on worker 0:"
        " std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n"
        f"- Free memory: {free}\n- Requested memory: {requested}\n\nStack trace:"
    )
    assert message.fields == {"free_bytes": sizes[0], "requested_bytes": sizes[1]}
    assert (message.framework, message.judgement.verdict) == ("xgboost", verdict)
    assert "RMM" not in " ".join(message.judgement.reasons)
