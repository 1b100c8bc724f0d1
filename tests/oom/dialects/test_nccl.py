from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form, integer, whole_bytes
from tests.oom.single import single

_AT = "node7:{pid}:{pid} [{device}] include/alloc.h"
FORMS = [
    Form(
        "nccl",
        _AT
        + ":178 NCCL WARN Cuda failure 2 'out of memory'\n\n"
        + _AT
        + ":185 NCCL WARN Failed to CUDA calloc {requested} bytes",
        {"pid": integer("pid", 1), "device": integer("device_index", 0, 7), "requested": whole_bytes("requested")},
    ),
    Form(
        "nccl",
        "torch.distributed.DistBackendError: NCCL error\nncclUnhandledCudaError: Call to CUDA function "
        "failed.\nLast error:\nCuda failure 'out of memory'",
    ),
]


def test_each_failing_process_is_one_message():
    lines = [
        f"node7:{pid}:{pid} [{device}] enqueue.cc:1085 NCCL WARN Cuda failure 'out of memory'"
        for pid, device in ((11, 0), (12, 1))
    ]
    assert [message.fields for message in read_text("\n".join(lines)).messages] == [
        {"pid": 11, "device_index": 0},
        {"pid": 12, "device_index": 1},
    ]


def test_a_cuda_failure_of_nccl_is_a_communication_failure():
    assert single("Cuda failure 2 'out of memory'").judgement.verdict == "workspace_or_comm"


def test_a_shared_memory_failure_is_host_memory():
    text = (
        "n:7:8 [3] misc/shmutils.cc:112 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-KWfVyt "
        "(size 5967872)"
    )
    message = single(text)
    assert (message.judgement.verdict, message.fields) == (
        "host",
        {"pid": 7, "device_index": 3, "requested_bytes": 5967872},
    )


def test_other_cuda_failures_are_ignored():
    assert not read_text("node7:392:494 [2] enqueue.cc:54 NCCL WARN Cuda failure 'invalid resource handle'").messages


def test_rccl_failures_are_read_like_those_of_nccl():
    message = single("node7:1:2 [3] alloc.h:9 NCCL WARN HIP failure 'out of memory'")
    assert (message.backend, message.judgement.verdict) == ("hip", "workspace_or_comm")


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("misc/ibvwrap.cc:211 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory", {}),
        (
            (
                "n3:91:93 [5] misc/ibvwrap.cc:281 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate "
                "memory"
            ),
            {"pid": 91, "device_index": 5},
        ),
        ("ibvwrap.c:112 NCCL WARN Call to ibv_reg_mr failed", {}),
        (
            (
                "ib_md.c:351  UCX  ERROR ibv_reg_mr(address=0x7f00, length=4194304, access=0xf) failed: Cannot "
                "allocate memory"
            ),
            {"requested_bytes": 4194304},
        ),
    ],
)
def test_a_network_card_needs_locked_memory(line, fields):
    message = single(line)
    assert (message.judgement.verdict, message.judgement.alternatives, message.fields) == ("host", ("limit",), fields)
    assert message.findings[0].fixes[0].change.startswith("ulimit -l unlimited")


def test_related_failures_of_a_network_card_are_one_message():
    warn = "NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory"
    assert (
        len(
            read_text(
                f"{warn}\n{warn}\nLast error:\nCall to ibv_create_cq failed with error Cannot allocate memory"
            ).messages
        )
        == 1
    )


@pytest.mark.parametrize("error", ["Invalid argument", "No such device", "Bad address"])
def test_other_errors_of_a_network_card_are_ignored(error):
    assert not read_text(f"NCCL WARN Call to ibv_reg_mr failed with error {error}").messages
