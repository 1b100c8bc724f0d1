from __future__ import annotations

import pytest

from tests.oom.message_forms import Form, integer, torch_size
from tests.oom.single import commands, single

_SIZES = {name: torch_size(name) for name in ("requested", "total", "allocated", "free")} | {
    "device": integer("device_index", 0, 15)
}
FORMS = [
    Form(
        "torch_musa",
        "RuntimeError: MUSA out of memory. Tried to allocate {requested} (GPU {device}; {total} total capacity; "
        "{allocated} already allocated; {free} free; {reserved} reserved in total by PyTorch)",
        _SIZES | {"reserved": torch_size("reserved")},
    ),
    Form(
        "torch_mlu",
        "torch.OutOfMemoryError: MLU out of memory. Tried to allocate {requested}. MLU {device} has a total capacity "
        "of {total} of which {free} is free. Of the allocated memory {allocated} is allocated by PyTorch, and "
        "{unallocated} is reserved by PyTorch but unallocated.",
        _SIZES | {"unallocated": torch_size("unallocated")},
    ),
]
FRAGMENTED = (
    "{head} out of memory. Tried to allocate 3.00 GiB ({word} 2; 60.00 GiB total capacity; 41.00 GiB already "
    "allocated; 0.50 GiB free; 58.00 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("head", "word", "variable"), [("MUSA", "GPU", "PYTORCH_MUSA_ALLOC_CONF"), ("MLU", "MLU", "PYTORCH_MLU_ALLOC_CONF")]
)
def test_settings_of_the_allocator_have_the_names_of_the_vendor(head, word, variable):
    text = FRAGMENTED.format(head=head, word=word)
    message = single(text)
    assert (message.backend, message.judgement.verdict) == (head.lower(), "fragmentation")
    assert message.fields["device_index"] == 2
    fix = message.findings[0].fixes[0]
    assert fix.applicability == f"torch_{head.lower()}, if its release has this setting"
    assert fix.caveat.count("before the first allocation") == 1
    lines = commands(text)
    assert lines.startswith(f"export {variable}=expandable_segments:True")
    assert "CUDA" not in lines
    assert "pip install" not in lines


def test_a_cut_off_message_is_recognised_by_its_variable():
    message = single(
        "Of the allocated memory 41.00 GiB is allocated by PyTorch, and 17.00 GiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_MLU_ALLOC_CONF=expandable_segments:True"
    )
    assert (message.dialect, message.backend) == ("torch_mlu", "mlu")


@pytest.mark.parametrize("head", ["MUSA", "MLU"])
def test_a_message_without_sizes_is_read(head):
    message = single(f"torch.OutOfMemoryError: {head} out of memory.")
    assert (message.backend, message.judgement.verdict) == (head.lower(), "unknown")
