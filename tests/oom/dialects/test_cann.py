from __future__ import annotations

import pytest
from hypothesis import strategies as st

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form, Slot, integer, whole_bytes
from tests.oom.single import commands, single

FORMS = [
    Form(
        "cann_el0004",
        "[ERROR] 2025-03-04-05:06:07 (PID:{pid}, Device:{device}, RankID:-1) ERR00100 PTA call acl api failed\n"
        "EL0004: [PID: {pid}] 2025-03-04-05:06:07.008.009 Failed to allocate memory.\n        Possible Cause: "
        "Available memory is insufficient.",
        {"pid": integer("pid", 1), "device": integer("device_index", 0, 15)},
    ),
    Form(
        "cann_el0004",
        "[ERROR] GE({pid},python3):2022-03-04-05:06:07.008.009 [graph_var_manager.cc:402]4712 AssignVarMem: ErrorNo: "
        "1343225857(Parameter's invalid!) [COMP][MEM_ALLOC][Check][Param]Out of memory:current var size[{requested}] "
        "exceeds total var size[{limit}]",
        {"pid": integer("pid", 1), "requested": whole_bytes("requested"), "limit": whole_bytes("limit")},
    ),
    Form(
        "cann_el0004",
        "[drv api] halMemAlloc failed: device_id={device}, size={requested}, type=2, drvRetCode=6",
        {"device": integer("device_index", 0, 15), "requested": Slot("requested_bytes", st.integers(1, 1 << 44))},
    ),
]

CODE = "Memory_Allocation_Failure(EL0004): Failed to allocate memory."


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (f"{CODE}\nalloc device memory failed, runtime result = 207001", "unknown"),
        (f"aclrtSetDevice(2) failed: 507033\n{CODE}\nopen device 2 failed, runtime result = 507033.", "other_process"),
        (f"{CODE}\nrtKernelLaunchWithHandleV2 execute failed, reason=[module new memory error]", "workspace_or_comm"),
        (
            f"{CODE}\nCall rtMalloc fail, purpose: page caching, type = 2, size:1073741824, device_id:1",
            "workspace_or_comm",
        ),
    ],
)
def test_the_failed_operation_decides_the_verdict(lines, verdict):
    assert single(lines).judgement.verdict == verdict


def test_size_and_device_are_read_from_runtime_lines():
    assert single(
        f"{CODE}\nCall rtMalloc fail, purpose: page caching, type = 2, size:1073741824, device_id:1"
    ).fields == {
        "requested_bytes": 1 << 30,
        "device_index": 1,
    }


def test_the_device_is_read_from_driver_lines_without_an_equals_sign():
    line = (
        "DevMemAllocHugePageManaged:[drv api] halMemAlloc failed:size=4194304(bytes), type=2, drvRetCode=6, device_id "
        "5, ErrCode=207001"
    )
    assert single(
        f"[ERROR] RUNTIME(4711,python3):2026-03-04-05:06:07.008.009 [npu_driver.cc:1534]4712 {line}"
    ).fields == {
        "requested_bytes": 4 << 20,
        "device_index": 5,
    }


def test_lines_of_the_graph_engine_log_are_read():
    lines = "GE device_allocator: [Malloc][Memory] failed, rt_ret:207001, size=536870912"
    assert single(lines).judgement.verdict == "workspace_or_comm"


def test_npu_smi_is_the_first_remedy_if_the_cause_is_unknown():
    assert commands(CODE).startswith("npu-smi info")


def test_two_failing_processes_are_two_messages():
    lines = [f"EL0004: [PID: {pid}] 2025-03-04-05:06:07.008.009 Failed to allocate memory." for pid in (7, 8)]
    assert [message.fields["pid"] for message in read_text("\n".join(lines)).messages] == [7, 8]


@pytest.mark.parametrize(
    "text",
    ["EL0004 is the code of failed allocations, 207001 another", "#define ACL_ERROR_RT_MEMORY_ALLOCATION 207001"],
)
def test_error_codes_alone_are_not_a_message(text):
    assert not read_text(text).messages
