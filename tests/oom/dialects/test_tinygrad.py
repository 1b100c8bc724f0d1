from __future__ import annotations

import pytest

from tests.oom.message_forms import Form, whole_bytes
from tests.oom.single import single

FORMS = [
    Form(
        "tinygrad",
        "MemoryError: Cannot allocate {requested} bytes: no memory is available.",
        {"requested": whole_bytes("requested")},
    ),
    Form(
        "tinygrad", "MemoryError: Metal OOM while allocating size={requested}", {"requested": whole_bytes("requested")}
    ),
]


@pytest.mark.parametrize(
    ("text", "requested", "backend"),
    [
        ("MemoryError: Cannot allocate 122341986304 bytes: no memory is available.", 122341986304, "hip"),
        ("MemoryError: Metal OOM while allocating size=4000000000", 4000000000, "metal"),
        ("RuntimeError: CUDA Error 2, out of memory", None, "cuda"),
    ],
)
def test_memory_of_the_device_and_not_of_the_host_ran_out(text, requested, backend):
    message = single(text)
    assert (message.dialect, message.backend, message.judgement.verdict) == ("tinygrad", backend, "capacity")
    assert message.fields.get("requested_bytes") == requested
