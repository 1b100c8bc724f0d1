from __future__ import annotations

from tests.oom.message_forms import Form, integer, whole_bytes
from tests.oom.single import commands, single

FORMS = [
    Form(
        "hccl",
        "current working operator name is HcclAllGather\nMemory_Allocation_Failure(EL0004): Failed to allocate memory\n"
        "Failed to allocate resource[DeviceMemory] with info [size:{requested}]",
        {"requested": whole_bytes("requested", least=1)},
    ),
    Form(
        "hccl",
        "[PID: {pid}] 2025-03-04-05:06:07.008.009 Resource_Error_Insufficient_Device_Memory(EI0011): Failed to "
        "allocate [size: [0.25MB, 3MB], "
        "Affected by QP depth configuration.] bytes of NPU memory.",
        {"pid": integer("pid", 1)},
    ),
]


def _resource(size):
    return f"Failed to allocate resource[DeviceMemory] with info [size:{size}]"


def test_the_buffer_size_is_inferred_from_the_allocation_of_a_communicator():
    message = single(_resource(2 * 800 * (1 << 20) + (1 << 20)))
    assert message.judgement.verdict == "workspace_or_comm"
    assert "HCCL_BUFFSIZE (800 MB)" in message.judgement.reasons[0]
    assert "HCCL_BUFFSIZE" in commands(_resource(1))


def test_fields_of_a_failed_communicating_operator_are_read():
    text = (
        "NPU function error: call aclnnFoo failed, error code is 207001\n"
        "[ERROR] 2025-09-28-07:22:30 (PID:4711, Device:7, RankID:3) ERR00100 PTA call acl api failed\n"
        "EL0004: [PID: 4711] 2025-09-28-07:22:29.827.496 Failed to allocate memory.\n" + _resource(1 << 31)
    )
    assert single(text).fields == {"requested_bytes": 1 << 31, "pid": 4711, "device_index": 7, "rank": 3}


def test_queue_pair_failures_are_read():
    text = (
        "EI0007: [PID: 4711] 2025-03-04-05:06:07.008.009 Failed to allocate resource[qp] with info [aicpu "
        "rank:5,deviceLogicId:1]."
    )
    assert (single(text).dialect, single(text).fields) == ("hccl", {"pid": 4711, "device_index": 1})
