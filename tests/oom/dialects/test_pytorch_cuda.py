from __future__ import annotations

import pytest

from memdiag.oom.dialects import pytorch_cuda
from memdiag.oom.lines import Line
from memdiag.oom.read import read_text
from memdiag.oom.squeezed import Squeezed
from tests.oom.message_forms import Form, choice, integer, torch_size
from tests.oom.single import single

_OLD = (
    "CUDA out of memory. Tried to allocate {requested} (GPU {device}; {total} total capacity; {allocated} already "
    "allocated; {free} free; "
)
_NEW = (
    "CUDA out of memory. Tried to allocate {requested}. GPU {device} has a total capacity of {total} of which {free} "
    "is free. "
)
_THIS = "Including non-PyTorch memory, this process has {process} memory in use. "
_ALLOCATED = "Of the allocated memory {allocated} is allocated by PyTorch, "
_POOLS = "with {pool} allocated in private pools (e.g., CUDA Graphs), "
_REST = (
    "and {unallocated} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "{conf}"
)
_BASE = {
    "requested": torch_size("requested"),
    "device": integer("device_index", 0, 63),
    "total": torch_size("total"),
    "free": torch_size("free"),
}
_USED = {**_BASE, "allocated": torch_size("allocated")}
_SPLIT = {
    **_USED,
    "unallocated": torch_size("unallocated"),
    "conf": choice(
        "",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid",
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid",
    ),
}
_SPLIT_FIXED = {key: slot for key, slot in _SPLIT.items() if key != "conf"}
_NEW_REST = _REST.replace("{conf}", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.")
FORMS = [
    Form("torch_cuda_cached", "RuntimeError: " + _OLD + "{cached} cached)", {**_USED, "cached": torch_size("cached")}),
    Form(
        "torch_cuda_reserved",
        "RuntimeError: " + _OLD + "{reserved} reserved in total by PyTorch)",
        {**_USED, "reserved": torch_size("reserved")},
    ),
    Form(
        "torch_cuda_reserved_hint",
        "torch.cuda.OutOfMemoryError: "
        + _OLD
        + "{limit} allowed; {reserved} reserved in total by PyTorch) If reserved memory is >> allocated memory try "
        "setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and "
        "PYTORCH_CUDA_ALLOC_CONF",
        {**_USED, "reserved": torch_size("reserved"), "limit": torch_size("limit")},
    ),
    Form(
        "torch_cuda_21",
        "torch.OutOfMemoryError: " + _NEW + _THIS + _ALLOCATED + _NEW_REST,
        {**_SPLIT_FIXED, "process": torch_size("process")},
    ),
    Form(
        "torch_cuda_21",
        "torch.OutOfMemoryError: " + _NEW + "Process {pid} has {process} memory in use. " + _ALLOCATED + _NEW_REST,
        {**_SPLIT_FIXED, "process": torch_size("process"), "pid": integer("pid", 1)},
    ),
    Form(
        "torch_cuda_allowed",
        "torch.OutOfMemoryError: " + _NEW + "{limit} allowed; " + _ALLOCATED + _POOLS + _NEW_REST,
        {**_SPLIT_FIXED, "limit": torch_size("limit"), "pool": torch_size("private_pool")},
    ),
    Form(
        "torch_cuda_private_pool",
        "torch.OutOfMemoryError: " + _NEW + _ALLOCATED + _POOLS + _NEW_REST,
        {**_SPLIT_FIXED, "pool": torch_size("private_pool")},
    ),
    Form(
        "torch_cuda_multiproc",
        "torch.OutOfMemoryError: "
        + _NEW
        + "Process 4711 has 1.50 GiB memory in use. Process 4712 has 0 bytes memory in use. "
        + _THIS
        + _ALLOCATED
        + _NEW_REST,
        {**_SPLIT_FIXED, "process": torch_size("process")},
        {"other_processes": [[4711, 1610612736], [4712, 0]]},
    ),
    Form(
        "torch_hip",
        ("torch.OutOfMemoryError: " + _NEW + "{limit} allowed; " + _ALLOCATED + _POOLS + _NEW_REST).replace(
            "CUDA", "HIP"
        ),
        {**_SPLIT_FIXED, "limit": torch_size("limit"), "pool": torch_size("private_pool")},
    ),
]

NEW = (
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 2 has a total capacity of 10.00 GiB of which 512.00 MiB is "
    "free."
)
GIB = 1 << 30


@pytest.mark.parametrize("word", ["capacty", "capacity"])
def test_both_spellings_of_capacity_are_read(word):
    assert single(NEW.replace("capacity", word)).fields["total_bytes"] == 10 * GIB


@pytest.mark.parametrize("place", ["GPU 2", "GPU cuda:2", "device 2", "NPU 2"])
def test_the_device_index_is_read_after_any_device_name(place):
    assert single(NEW.replace("GPU 2", place)).fields["device_index"] == 2


def test_two_processes_without_this_one_are_all_listed():
    text = NEW + " Process 7 has 1.00 GiB memory in use. Process 8 has 2.00 GiB memory in use."
    assert single(text).fields["processes"] == [[7, GIB], [8, 2 * GIB]]
    assert single(text).dialect == "torch_cuda_multiproc"


def test_a_single_listed_process_is_the_failing_one():
    fields = single(NEW + " Process 7 has 9.00 GiB memory in use.").fields
    assert (fields["pid"], fields["process_bytes"]) == (7, 9 * GIB)


def test_an_overflowed_process_size_is_ignored():
    assert "process_bytes" not in single(NEW + " this process has 17179869184.00 GiB memory in use.").fields


def test_every_clause_can_be_missing():
    whole = NEW + (
        " 5.00 GiB allowed; Of the allocated memory 4.00 GiB is allocated by PyTorch, and 1 GiB is reserved by "
        "PyTorch but unallocated."
    )
    for cut in range(len("CUDA out of memory. Tried to allocate 1.00 GiB"), len(whole)):
        fields = single(whole[:cut]).fields
        assert fields["requested_bytes"] == GIB
        assert set(fields) <= set(single(whole).fields)
    for start in range(whole.index("has a total")):
        message = single(whole[start:])
        assert message.fields["allocated_bytes"] == 4 * GIB


def test_a_message_without_its_first_words_is_read():
    text = (
        "(GPU 3; 14.00 GiB total capacity; 8.00 GiB already allocated; 19.75 MiB free; 13.00 GiB reserved in total by "
        "PyTorch)"
    )
    assert single(text).dialect == "torch_cuda_reserved"
    assert single(text).fields["device_index"] == 3


def test_elided_clauses_lose_only_their_own_fields():
    fields = single(
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; ...; 4.00 GiB already allocated; ...; 1.00 GiB free "
        "...)"
    ).fields
    assert fields == {"requested_bytes": 2 * GIB, "device_index": 0, "allocated_bytes": 4 * GIB, "free_bytes": GIB}


def test_consecutive_messages_are_separated():
    messages = read_text((NEW + "\n" + NEW.replace("1.00 GiB", "3.00 GiB").replace("GPU 2", "GPU 4")) * 1).messages
    assert [(message.fields["requested_bytes"], message.fields["device_index"]) for message in messages] == [
        (GIB, 2),
        (3 * GIB, 4),
    ]


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        (NEW, {"generation:2.1"}),
        (f"torch.OutOfMemoryError: {NEW}", {"generation:2.5", "exception:OutOfMemoryError"}),
        (f"RuntimeError: {NEW}", {"generation:2.1", "exception:RuntimeError"}),
        (
            (
                f"{NEW} If reserved but unallocated memory is large try setting "
                "PYTORCH_ALLOC_CONF=expandable_segments:True"
            ),
            {"generation:2.9", "hint:expandable_segments", "conf-name:PYTORCH_ALLOC_CONF"},
        ),
        (
            "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 2.00 GiB total capacity; 3.00 MiB cached)",
            {"generation:0.4"},
        ),
    ],
)
def test_the_version_is_inferred_from_the_wording(text, marks):
    [found] = pytorch_cuda.find(Squeezed([Line(1, text)]))
    assert found.marks == marks


def test_a_preemptive_rejection_is_a_limit():
    text = (
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
        "per_process_memory_fraction limit. Requested size: 1.00 GiB"
    )
    message = single(text)
    assert (message.fields, message.judgement.verdict) == ({"requested_bytes": GIB}, "limit")


@pytest.mark.parametrize(
    "text",
    [
        '        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")',
        "    except torch.cuda.OutOfMemoryError:",
        (
            'TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", '
            'format_size(alloc_size), ". GPU ", device);'
        ),
        "If you run into CUDA out of memory errors, lower the batch size.",
        "CUDA out of memory. Tried to allocate X GiB (GPU X; X GiB total capacity; X GiB already allocated)",
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1234 bytes.",
    ],
)
def test_code_and_prose_that_name_the_error_are_not_messages(text):
    assert not list(pytorch_cuda.find(Squeezed([Line(1, text)])))


_HEAD = "torch.OutOfMemoryError: CUDA out of memory. "
_PHOTOGRAPHED = (
    "Tried to allocate 1.25 GiB. GPU 2 has a total capacity of 39.50 GiB of which 800.25 MiB is free. Including "
    "non-PyTorch memory, this process has 38.70 GiB memory in use. Of the allocated memory 30.00 GiB is allocated by "
    "PyTorch, and 7.50 GiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize(
    ("letter", "seen"), [("l", "1"), ("l", "I"), ("l", "|"), ("I", "l"), ("o", "0"), ("o", "O"), ("i", "l"), ("i", "1")]
)
def test_misread_letters_of_a_photographed_message_are_tolerated(letter, seen):
    blurred = single(_HEAD + _PHOTOGRAPHED.replace(letter, seen))
    assert blurred.fields == single(_HEAD + _PHOTOGRAPHED).fields


def test_misread_digits_of_a_photographed_message_are_not_guessed():
    assert "requested_bytes" not in single(_HEAD + _PHOTOGRAPHED.replace("1.25", "l.25")).fields
