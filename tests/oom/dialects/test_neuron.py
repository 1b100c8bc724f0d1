from __future__ import annotations

import pytest

from memdiag.oom.read import read_text
from tests.oom.message_forms import Form, whole_bytes
from tests.oom.single import commands, single

FORMS = [
    Form(
        "neuron",
        "2033-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:dmem_alloc_internal       Failed to alloc DEVICE memory: "
        "{requested}",
        {"requested": whole_bytes("requested", 1 << 40)},
    ),
]
OLDER = (
    "2033-Jan-02 03:04:05.678901  4711:4712  ERROR  TDRV:dmem_alloc_internal       Failed to alloc DEVICE memory: "
    "50331648\n"
    "2033-Jan-02 03:04:05.678902  4711:4712  ERROR  TDRV:log_dev_mem               Failed to allocate 48.000MB (usage: "
    "tensors) on ND 0:NC 3, current utilization:\n\t* total: 15.750GB\n\t* tensors: 15.500GB\n\n"
    "2033-Jan-02 03:04:05.678903  4711:4712  ERROR  TDRV:tensor_allocate           Failed to allocate 50331648 bytes "
    "on DEVICE for tensor UNKNOWN.\n"
    'RuntimeError: nrt_tensor_allocate status=4 message="Allocation Failure"'
)
NEWER = (
    "2033-Jan-02 03:04:05 ERROR  TDRV:dmem_alloc_internal  Failed to allocate DEVICE memory (50331648 bytes): memory "
    "allocation failed (ret=-12)\n"
    "2033-Jan-02 03:04:05 ERROR  TDRV:log_dev_mem  Failed to allocate 48.000MB (alignment: none, usage: tensors) on ND "
    "0:NC 3\n"
    "              |  TOTAL   |   Code   | Tensors  |\n"
    "ND 0 HBM 0    | 15.750GB | 64.000MB | 15.500GB |\n"
)


@pytest.mark.parametrize("text", [OLDER, NEWER])
def test_all_lines_about_a_refusal_are_one_message_with_its_numbers(text):
    message = single(text)
    assert (message.dialect, message.framework, message.backend) == ("neuron", "neuron", "neuron")
    assert message.fields == {"requested_bytes": 48 << 20, "allocated_bytes": 63 << 28, "device_index": 3}
    assert message.judgement.verdict == "capacity"
    assert commands(text).startswith("--tensor-parallel-size")


def test_refused_host_memory_is_not_memory_of_the_device():
    message = single("ERROR  TDRV:dmem_alloc_internal  Failed to allocate HOST memory (4194304 bytes)")
    assert (message.backend, message.judgement.verdict) == ("cpu", "host")


def test_an_error_of_the_runtime_without_a_size_is_read():
    message = single('RuntimeError: nrt_load_collectives status=4 message="Allocation Failure"')
    assert (message.fields, message.judgement.confidence) == ({}, "low")


def test_ordinary_lines_of_the_runtime_are_no_message():
    assert not read_text(
        "2033-Jan-02 03:04:05.678901  4711:4712  INFO  NRT:nrt_init  device memory total: 16GB"
    ).messages
