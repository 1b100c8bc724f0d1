from __future__ import annotations

from message_forms import Form, integer, whole_bytes
from single import single

from memdiag.oom.read import read_text

_AT = "node7:{pid}:{pid} [{device}] include/alloc.h"
FORMS = [
    Form(
        "nccl",
        _AT + ":178 NCCL WARN Cuda failure 2 'out of memory'\n\n" + _AT + ":185 NCCL WARN Failed to CUDA calloc {requested} bytes",
        {"pid": integer("pid", 1), "device": integer("device_index", 0, 7), "requested": whole_bytes("requested")},
    ),
    Form(
        "nccl",
        "torch.distributed.DistBackendError: NCCL error\nncclUnhandledCudaError: Call to CUDA function "
        "failed.\nLast error:\nCuda failure 'out of memory'",
    ),
]


def test_processes_fail_each_for_itself():
    lines = [f"node7:{pid}:{pid} [{device}] enqueue.cc:1085 NCCL WARN Cuda failure 'out of memory'" for pid, device in ((11, 0), (12, 1))]
    assert [message.fields for message in read_text("\n".join(lines)).messages] == [
        {"pid": 11, "device_index": 0},
        {"pid": 12, "device_index": 1},
    ]


def test_memory_comes_from_the_driver():
    assert single("Cuda failure 2 'out of memory'").judgement.verdict == "workspace_or_comm"


def test_shared_memory_is_the_hosts():
    text = "n:7:8 [3] misc/shmutils.cc:112 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-KWfVyt (size 5967872)"
    message = single(text)
    assert (message.judgement.verdict, message.fields) == ("host", {"pid": 7, "device_index": 3, "requested_bytes": 5967872})


def test_other_failures_of_cuda_are_none():
    assert not read_text("node7:392:494 [2] enqueue.cc:54 NCCL WARN Cuda failure 'invalid resource handle'").messages


def test_rccl_is_the_same_on_other_cards():
    message = single("node7:1:2 [3] alloc.h:9 NCCL WARN HIP failure 'out of memory'")
    assert (message.backend, message.judgement.verdict) == ("hip", "workspace_or_comm")
