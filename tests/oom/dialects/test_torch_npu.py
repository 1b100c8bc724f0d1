from __future__ import annotations

import pytest

from memdiag.oom.dialects import torch_npu
from memdiag.oom.lines import Line
from memdiag.oom.read import read_text
from memdiag.oom.squeezed import Squeezed
from tests.oom.message_forms import Form, choice, integer, torch_size, whole_bytes
from tests.oom.single import commands, single

_HEAD = (
    "RuntimeError: NPU out of memory. Tried to allocate {requested} (NPU {device}; {total} total capacity; {allocated} "
    "already allocated; "
)
_BASE = {
    "requested": torch_size("requested"),
    "device": integer("device_index", 0, 15),
    "total": torch_size("total"),
    "allocated": torch_size("allocated"),
    "free": torch_size("free"),
}
_ACTIVE = {**_BASE, "active": torch_size("active"), "reserved": torch_size("reserved")}
_HINT = "If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
FORMS = [
    Form("torch_npu", _HEAD + "{free} free; {cached} cached)", {**_BASE, "cached": torch_size("cached")}),
    Form(
        "torch_npu",
        _HEAD + "{active} current active; {free} free; {reserved} reserved in total by PyTorch) " + _HINT,
        _ACTIVE,
    ),
    Form(
        "torch_npu",
        _HEAD.replace("RuntimeError", "torch.OutOfMemoryError")
        + "{active} current active; {free} free; {limit} allowed; {reserved} reserved in total by PyTorch)."
        + _HINT,
        {**_ACTIVE, "limit": torch_size("limit")},
    ),
    Form(
        "torch_npu_workspace",
        "NPU out of memory. NPUWorkspaceAllocator tried to allocate {requested}(NPU {device}; {total} total "
        "capacity; {free} free). If you want to "
        "reduce memory usage, take a try to set the environment variable TASK_QUEUE_ENABLE=1.",
        {key: slot for key, slot in _BASE.items() if key != "allocated"},
    ),
    Form(
        "torch_npu",
        "RuntimeError: Malloc pin memory failed, host out of memory, Rried to allocate size: {requested}, "
        "total_allocated_memory: {allocated}, "
        "total_reserved_memory: {reserved}",
        {
            "requested": whole_bytes("requested"),
            "allocated": whole_bytes("allocated"),
            "reserved": whole_bytes("reserved"),
        },
    ),
    Form(
        "torch_npu",
        "RuntimeError: NPU out of memory. device id: {device}",
        {"device": choice("device_index", 0, 7, 15)},
    ),
]

MESSAGE = (
    "NPU out of memory. Tried to allocate 30.00 MiB (NPU 3; 60.96 GiB total capacity; 60.00 GiB already "
    "allocated; 60.00 GiB current active; "
    "14.00 MiB free; 60.60 GiB reserved in total by PyTorch)"
)


def test_a_loosely_quoted_message_is_read():
    text = (
        "    Tried to allocated 100.00 MiB (NPU 2; 61.00 GiB total capacity; 53.00 GiB already allocated; 53.00 GiB "
        "current activate;\n"
        "    1.50 GiB free; 56.00 GiB reserved in total by PyTorch)"
    )
    fields = single(text).fields
    assert single(text).backend == "npu"
    assert {name: round(int(str(value)) / (1 << 20)) for name, value in fields.items() if name.endswith("bytes")} == {
        "requested_bytes": 100,
        "total_bytes": 61 * 1024,
        "allocated_bytes": 53 * 1024,
        "active_bytes": 53 * 1024,
        "free_bytes": 1536,
        "reserved_bytes": 56 * 1024,
    }


@pytest.mark.parametrize(
    ("text", "generation"),
    [
        (MESSAGE, "npu-1.11"),
        (MESSAGE + ".If reserved memory is >> allocated memory", "npu-26.0"),
        ("NPU out of memory. Tried to allocate 1.00 MiB (NPU 0; 2.00 MiB cached)", "npu-1.8"),
    ],
)
def test_the_version_is_inferred_from_the_wording(text, generation):
    [found] = torch_npu.find(Squeezed([Line(1, text)]))
    assert f"generation:{generation}" in found.marks


def test_lines_of_cann_after_a_message_belong_to_it():
    text = (
        f"RuntimeError: {MESSAGE}\nEL0004: [PID: 7] 2025-03-04-05:06:07.008.009 Failed to allocate memory.\nalloc "
        f"device memory failed, 207001"
    )
    assert single(text).dialect == "torch_npu"


def test_lines_of_cann_before_a_message_belong_to_it():
    text = f"EL0004: [PID: 7] 2025-03-04-05:06:07.008.009 Failed to allocate memory.\nRuntimeError: {MESSAGE}"
    assert [message.dialect for message in read_text(text).messages] == ["torch_npu"]


def test_a_failed_workspace_allocation_advises_the_task_queue():
    text = (
        "NPU out of memory. NPUWorkspaceAllocator tried to allocate 240.00 MiB(NPU 2; 60.97 GiB total capacity; 101.25 "
        "MiB free)."
    )
    assert single(text).judgement.verdict == "workspace_or_comm"
    assert "TASK_QUEUE_ENABLE=1" in commands(text)


def test_pinned_memory_is_host_memory():
    assert (
        single("Malloc pin memory failed, host out of memory, Rried to allocate size: 1024").judgement.verdict == "host"
    )


def test_a_cache_flush_is_not_a_failure():
    text = (
        "Get a block from the existing pool failed. Try to free cached blocks and reallocate. This error log can be "
        "ignored."
    )
    assert not read_text(text).messages
